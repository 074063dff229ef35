package servers

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// self names this process so that no later process has the same name: host, pid
// and, where the system tells, the start time in ticks.
func self() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("%s %d %s", host, os.Getpid(), startTime(os.Getpid()))
}

// ownerGone reports whether the named process was of this host and has ended.
func ownerGone(owner string) bool {
	host, _ := os.Hostname()
	f := strings.Split(owner, " ")
	if len(f) != 3 || f[0] != host {
		return false
	}
	pid, err := strconv.Atoi(f[1])
	return err == nil && f[2] != "" && startTime(pid) != f[2]
}

// stat returns the fields of /proc/pid/stat after the command, or nil.
func stat(pid int) []string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	return strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
}

// awaitStates waits until a process is in one of the states, each a letter as in
// proc(5), or is gone.
func awaitStates(pid int, states string) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for f := stat(pid); len(f) > 0 && !strings.Contains(states, f[0]); f = stat(pid) {
		<-tick.C
	}
}

// startTime returns the start time of a process in ticks since boot, or "".
func startTime(pid int) string {
	if f := stat(pid); len(f) > 19 {
		return f[19]
	}
	return ""
}

// children returns the direct children of a process.
func children(parent int) []int {
	entries, _ := os.ReadDir("/proc")
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if f := stat(pid); len(f) > 1 && f[1] == strconv.Itoa(parent) {
			pids = append(pids, pid)
		}
	}
	return pids
}
