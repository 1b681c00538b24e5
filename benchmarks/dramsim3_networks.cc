// Executes the programs of nmpsim's cores with DRAMsim3 as memory, in a closed loop, and prints the cycles. A core waits
// for the transfers that its program waits for; the queue of a unit is as deep as the device's.
//
// Usage: dramsim3_networks CONFIG.ini PROGRAM
// PROGRAM begins with the device: cores, clocks of the DRAM in a cycle, bytes of a burst, depth of queues, cycles of a
// descriptor, of the start of a transfer, of the latency of a read and of a write, and of a barrier. Each further line
// is an instruction: core, cycles of the control core before it, and one of
//   L or S, cycles of padding, address, run bytes, count x, count y, stride x, stride y: a load or a store
//   M or V, cycles: work of the MAC array or of the vector unit
//   W unit count: wait until at most so many instructions of the unit (0 to 3) are unfinished
//   B number count: wait until so many cores are at the barrier with this number; H: halt

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "dramsim3.h"

const uint64_t NEVER = UINT64_MAX;
const std::string UNITS = "LSMV";

struct Instruction {
    uint64_t control;
    char kind;
    int64_t words[7];
};

struct Transfer {
    size_t core, unit;
    uint64_t ready, setup;
    std::vector<uint64_t> bursts;
    size_t asked = 0, done = 0;
};

struct Core {
    std::vector<Instruction> program;
    size_t at = 0;
    uint64_t clock = 0;
    bool begun = false, at_barrier = false, halted = false;
    std::vector<uint64_t> finished[4];  // cycle of each instruction, or NEVER
    uint64_t free[4] = {0, 0, 0, 0};
    std::deque<Transfer> queues[2];
    bool active[2] = {false, false};
};

uint64_t depth, descriptor, startup, read_latency, write_latency, barrier, burst_bytes;

// Bursts of a box of runs; one that two consecutive runs share is moved once.
std::vector<uint64_t> list_bursts(const int64_t* w) {
    std::vector<uint64_t> bursts;
    for (int64_t y = 0; y < w[4]; y++)
        for (int64_t x = 0; x < w[3]; x++) {
            const uint64_t begin = w[1] + y * w[6] + x * w[5], end = begin + w[2];
            for (uint64_t burst = begin / burst_bytes; burst * burst_bytes < end; burst++)
                if (bursts.empty() || bursts.back() != burst * burst_bytes) bursts.push_back(burst * burst_bytes);
        }
    return bursts;
}

uint64_t end_of(const Core& core, size_t unit, int64_t job) { return job < 0 ? 0 : core.finished[unit][job]; }

// Executes the instructions of a core up to a cycle, or until one must wait.
void advance(Core& core, size_t number, uint64_t now) {
    while (!core.halted && !core.at_barrier && core.clock <= now) {
        const Instruction& one = core.program[core.at];
        if (!core.begun) core.clock += one.control;
        core.begun = true;
        if (core.clock > now) return;
        if (one.kind == 'H') {
            core.halted = true;
            return;
        }
        if (one.kind == 'B') {
            core.at_barrier = true;
            return;
        }
        const bool waits = one.kind == 'W';
        const size_t unit = waits ? one.words[0] : UNITS.find(one.kind);
        const int64_t issued = core.finished[unit].size();
        const uint64_t end = end_of(core, unit, waits ? issued - 1 - one.words[1] : issued - int64_t(depth));
        if (end > now) {
            if (end != NEVER) core.clock = end;
            return;
        }
        core.clock = std::max(core.clock, now) + (waits ? 1 : descriptor + 1);
        core.at++;
        core.begun = false;
        if (waits) continue;
        const uint64_t issue = core.clock - 1;
        if (unit >= 2) {
            core.free[unit] = std::max(issue, core.free[unit]) + one.words[0];
            core.finished[unit].push_back(core.free[unit]);
        } else {
            core.finished[unit].push_back(NEVER);
            core.queues[unit].push_back({number, unit, issue, startup + one.words[0], list_bursts(one.words)});
        }
    }
}

int main(int, char** argv) {
    std::ifstream file(argv[2]);
    size_t count, ratio;
    file >> count >> ratio >> burst_bytes >> depth >> descriptor >> startup >> read_latency >> write_latency >> barrier;
    std::vector<Core> cores(count);
    size_t number;
    for (Instruction one; file >> number >> one.control >> one.kind;) {
        const int words = std::strchr("LS", one.kind) ? 7 : std::strchr("WB", one.kind) ? 2 : one.kind == 'H' ? 0 : 1;
        for (int word = 0; word < words; word++) file >> one.words[word];
        cores[number].program.push_back(one);
    }
    std::multimap<uint64_t, Transfer*> waiting[2];
    std::vector<Transfer*> active;
    uint64_t now = 0;
    auto served = [&](uint64_t address, size_t unit) {
        const auto found = waiting[unit].find(address);
        found->second->done++;
        waiting[unit].erase(found);
    };
    auto* memory = dramsim3::GetMemorySystem(
        argv[1], ".", [&](uint64_t a) { served(a, 0); }, [&](uint64_t a) { served(a, 1); });
    for (;; now++) {
        size_t running = 0;
        std::map<int64_t, std::vector<Core*>> barriers;
        for (size_t i = 0; i < count; i++) {
            Core& core = cores[i];
            advance(core, i, now);
            running += !core.halted;
            if (core.at_barrier) barriers[core.program[core.at].words[0]].push_back(&core);
            for (size_t unit = 0; unit < 2; unit++) {
                if (core.active[unit] || core.queues[unit].empty()) continue;
                Transfer& transfer = core.queues[unit].front();
                if (std::max(transfer.ready, core.free[unit]) + transfer.setup > now) continue;
                core.active[unit] = true;
                active.push_back(&transfer);
            }
        }
        if (running == 0) break;
        for (auto& [_, arrived] : barriers) {
            if (int64_t(arrived.size()) < arrived[0]->program[arrived[0]->at].words[1]) continue;
            uint64_t latest = 0;
            for (const Core* core : arrived) latest = std::max(latest, core->clock);
            for (Core* core : arrived) {
                core->at_barrier = core->begun = false;
                core->at++;
                core->clock = latest + barrier;
            }
        }
        for (size_t clock = 0; clock < ratio; clock++) {
            for (Transfer* transfer : active)
                while (transfer->asked < transfer->bursts.size()) {
                    // DRAMsim3 ignores the upper bits. They keep it from serving equal requests of cores once.
                    const uint64_t address = transfer->bursts[transfer->asked] | (transfer->core + 1) << 40;
                    if (!memory->WillAcceptTransaction(address, transfer->unit == 1)) break;
                    waiting[transfer->unit].emplace(address, transfer);
                    transfer->asked++;
                    memory->AddTransaction(address, transfer->unit == 1);
                }
            memory->ClockTick();
        }
        for (size_t i = 0; i < active.size();) {
            Transfer* transfer = active[i];
            if (transfer->done < transfer->bursts.size()) {
                i++;
                continue;
            }
            Core& core = cores[transfer->core];
            const size_t unit = transfer->unit, job = core.finished[unit].size() - core.queues[unit].size();
            core.free[unit] = now + 1;
            core.finished[unit][job] = now + 1 + (unit == 0 ? read_latency : write_latency);
            core.active[unit] = false;
            active.erase(active.begin() + i);
            core.queues[unit].pop_front();
        }
    }
    uint64_t end = 0;
    for (const Core& core : cores) end = std::max(end, core.clock);
    std::printf("%llu\n", static_cast<unsigned long long>(end));
}
