// Replays a trace of nmpsim (--dram-trace) in DRAMsim3 and prints the clocks until all is served; dramsim3.json has
// what DRAMsim3 counted.
//
// Usage: dramsim3_replay CONFIG.ini TRACE CLOCKS_PER_CYCLE
// With CLOCKS_PER_CYCLE 0 every burst is there from the beginning.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "dramsim3.h"

int main(int, char** argv) {
    uint64_t issued = 0, done = 0, clock = 0, cycle = 0;
    auto served = [&done](uint64_t) { done++; };
    auto* memory = dramsim3::GetMemorySystem(argv[1], ".", served, served);
    std::ifstream trace(argv[2]);
    const double clocks_per_cycle = std::atof(argv[3]);
    std::string address, operation;
    bool more = static_cast<bool>(trace >> address >> operation >> cycle);
    while (more || done < issued) {
        // A channel takes at most a burst each few clocks, so one a clock is as many as it can.
        while (more && cycle * clocks_per_cycle <= clock) {
            const uint64_t at = std::stoull(address, nullptr, 16);
            if (!memory->WillAcceptTransaction(at, operation == "WRITE")) break;
            memory->AddTransaction(at, operation == "WRITE");
            issued++;
            more = static_cast<bool>(trace >> address >> operation >> cycle);
        }
        memory->ClockTick();
        clock++;
    }
    memory->PrintStats();
    std::printf("%llu\n", static_cast<unsigned long long>(clock));
}
