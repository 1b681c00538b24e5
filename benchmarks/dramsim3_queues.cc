// Serves queues of transfers in DRAMsim3 in a closed loop, and prints the clocks until all is served. A queue asks for
// its next transfer a fixed time after the last bursts of the transfer before are done.
//
// Usage: dramsim3_queues CONFIG.ini TRANSFERS THINK_CLOCKS BURST_BYTES
// A line of TRANSFERS is a queue's number, an address, a number of bytes, and 1 for a write or 0.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <vector>

#include "dramsim3.h"

struct Transfer {
    uint64_t address, bytes;
    bool is_write;
};

struct Queue {
    std::vector<Transfer> transfers;
    size_t current = 0;
    uint64_t asked = 0, open = 0, ready = 0;  // bytes asked for, bursts not done, clock of the next request
};

int main(int, char** argv) {
    std::vector<Queue> queues;
    std::multimap<uint64_t, size_t> waiting;
    uint64_t clock = 0, left = 0;
    const uint64_t think = std::strtoull(argv[3], nullptr, 10), burst = std::strtoull(argv[4], nullptr, 10);
    std::ifstream file(argv[2]);
    for (uint64_t number, address, bytes, is_write; file >> number >> address >> bytes >> is_write; left++) {
        queues.resize(std::max<size_t>(queues.size(), number + 1));
        queues[number].transfers.push_back({address, bytes, is_write != 0});
    }
    auto served = [&](uint64_t address) {
        const auto found = waiting.find(address);
        Queue& queue = queues[found->second];
        waiting.erase(found);
        queue.open--;
        if (queue.open == 0 && queue.asked >= queue.transfers[queue.current].bytes) {
            queue.current++;
            queue.asked = 0;
            queue.ready = clock + think;
            left--;
        }
    };
    auto* memory = dramsim3::GetMemorySystem(argv[1], ".", served, served);
    for (; left > 0; clock++) {
        for (size_t number = 0; number < queues.size(); number++) {
            Queue& queue = queues[number];
            while (queue.current < queue.transfers.size() && clock >= queue.ready) {
                const Transfer& transfer = queue.transfers[queue.current];
                if (queue.asked >= transfer.bytes) break;
                // DRAMsim3 ignores the upper bits. They keep it from serving equal requests of queues once.
                const uint64_t address = (transfer.address + queue.asked) | (number + 1) << 40;
                if (!memory->WillAcceptTransaction(address, transfer.is_write)) break;
                waiting.emplace(address, number);
                queue.asked += burst;
                queue.open++;
                memory->AddTransaction(address, transfer.is_write);
            }
        }
        memory->ClockTick();
    }
    std::printf("%llu\n", static_cast<unsigned long long>(clock));
}
