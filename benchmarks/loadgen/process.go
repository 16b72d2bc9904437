package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Figures of the kernel about the server, this generator and the whole machine.

const ticksPerSecond = 100 // USER_HZ: fixed by the Linux ABI

type usage struct {
	at      time.Time
	server  float64 // CPU seconds, all threads of all given processes
	self    float64
	machine float64 // busy seconds of all cores, steal included
	steal   float64
	evicted int64 // times a thread of the server lost its core to somebody else
}

func readUsage(pids []int) (usage, error) {
	u := usage{at: time.Now()}
	for _, pid := range pids {
		seconds, err := processSeconds(pid)
		if err != nil {
			return u, err
		}
		u.server += seconds
		u.evicted += involuntarySwitches(pid)
	}
	var own syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err != nil {
		return u, err
	}
	u.self = timevalSeconds(own.Utime) + timevalSeconds(own.Stime)
	var err error
	u.machine, u.steal, err = machineSeconds()
	return u, err
}

func timevalSeconds(t syscall.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }

func processSeconds(pid int) (float64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	return sumTicks(fields[11:13])
}

func involuntarySwitches(pid int) int64 {
	sum := int64(0)
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	for _, path := range threads {
		if data, err := os.ReadFile(path); err == nil { // a thread may end meanwhile
			sum += valueOf(string(data), "nonvoluntary_ctxt_switches:")
		}
	}
	return sum
}

func machineSeconds() (busy, steal float64, err error) {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0, err
	}
	line, _, _ := strings.Cut(string(data), "\n")
	fields := strings.Fields(line) // cpu user nice system idle iowait irq softirq steal guest guest_nice
	if steal, err = sumTicks(fields[8:9]); err != nil {
		return 0, 0, err
	}
	busy, err = sumTicks(append(append([]string{}, fields[1:4]...), fields[6:9]...))
	return busy, steal, err
}

func sumTicks(fields []string) (float64, error) {
	sum := 0.0
	for _, field := range fields {
		ticks, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return 0, err
		}
		sum += ticks
	}
	return sum / ticksPerSecond, nil
}

type memory struct {
	RSSKiB  int64 `json:"rss_kib"`
	AnonKiB int64 `json:"anonymous_kib"`
}

func readMemory(pids []int) (memory, error) {
	var m memory
	for _, pid := range pids {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			return m, err
		}
		m.RSSKiB += valueOf(string(data), "Rss:")
		m.AnonKiB += valueOf(string(data), "Anonymous:")
	}
	return m, nil
}

func valueOf(text, name string) int64 {
	for _, line := range strings.Split(text, "\n") {
		if fields := strings.Fields(line); len(fields) >= 2 && fields[0] == name {
			value, _ := strconv.ParseInt(fields[1], 10, 64)
			return value
		}
	}
	return 0
}

func loadAverage() float64 {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return -1
	}
	value, _ := strconv.ParseFloat(strings.Fields(string(data))[0], 64)
	return value
}
