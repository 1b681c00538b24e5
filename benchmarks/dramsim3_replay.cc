// Replays a trace of nmpsim (--dram-trace) in DRAMsim3 and prints the clocks until all is served; dramsim3.json has
// what DRAMsim3 counted.
//
// Usage: dramsim3_replay CONFIG.ini TRACE CHANNELS ROW_BYTES
// All bursts are requested at the beginning. Each channel takes its own in order: one whose queue is full keeps no
// other from going on. Rows go round the channels.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "dramsim3.h"

struct Burst {
    uint64_t address;
    bool is_write;
};

int main(int, char** argv) {
    uint64_t left = 0, clock = 0;
    auto served = [&left](uint64_t) { left--; };
    auto* memory = dramsim3::GetMemorySystem(argv[1], ".", served, served);
    std::ifstream trace(argv[2]);
    const uint64_t row_bytes = std::strtoull(argv[4], nullptr, 10);
    std::vector<std::vector<Burst>> bursts(std::strtoull(argv[3], nullptr, 10));
    std::vector<size_t> next(bursts.size(), 0);
    std::string address, operation;
    for (uint64_t cycle; trace >> address >> operation >> cycle; left++) {
        const uint64_t at = std::stoull(address, nullptr, 16);
        bursts[at / row_bytes % bursts.size()].push_back({at, operation == "WRITE"});
    }
    for (; left > 0; clock++) {
        // A channel takes at most a burst each few clocks, so as many as its queue holds are all that it can.
        for (size_t channel = 0; channel < bursts.size(); channel++) {
            for (size_t& one = next[channel]; one < bursts[channel].size(); one++) {
                const Burst& burst = bursts[channel][one];
                if (!memory->WillAcceptTransaction(burst.address, burst.is_write)) break;
                memory->AddTransaction(burst.address, burst.is_write);
            }
        }
        memory->ClockTick();
    }
    memory->PrintStats();
    std::printf("%llu\n", static_cast<unsigned long long>(clock));
}
