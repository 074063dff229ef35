package redis

import (
	"fmt"
	"strings"
	"time"
)

// Options adjusts a sink. The zero value is ready to use.
type Options struct {
	// Prefix begins every key of the ledger; default "walsink:". It must hold
	// neither braces nor spaces. Records must not touch keys that begin with it.
	Prefix string
	// AuditRows is how many audit rows a lane keeps; default 1000, negative none.
	AuditRows int
	// ChunkTime is how long one script call may keep the server busy; default 2 ms.
	// The size of a chunk follows what is measured.
	ChunkTime time.Duration
	// ForceEviction lets the sink open on a server whose maxmemory-policy may evict
	// the ledger. An evicted ledger ends in a refusal at the next flush.
	ForceEviction bool
	// WaitReplicas is how many replicas must have a step before it counts as done;
	// 0 does not wait. A step that too few have in time is Ambiguous: its mark is
	// read, and waited for, again. Not for clusters.
	WaitReplicas int
	// WaitAOF also waits until the append-only file of the server, and of
	// WaitReplicas replicas, is synced. The server must be Redis 7.2 or newer.
	WaitAOF bool
	// WaitTimeout ends the waiting; default 1 s.
	WaitTimeout time.Duration
}

func (o Options) withDefaults() (Options, error) {
	if o.Prefix == "" {
		o.Prefix = "walsink:"
	}
	if strings.ContainsAny(o.Prefix, "{} \t\r\n") {
		return o, fmt.Errorf("redis: prefix %q: want neither braces nor spaces", o.Prefix)
	}
	if o.AuditRows == 0 {
		o.AuditRows = 1000
	}
	o.AuditRows = max(o.AuditRows, 0)
	if o.ChunkTime <= 0 {
		o.ChunkTime = 2 * time.Millisecond
	}
	if o.WaitTimeout <= 0 {
		o.WaitTimeout = time.Second
	}
	if o.WaitReplicas < 0 {
		return o, fmt.Errorf("redis: WaitReplicas %d: want 0 or more", o.WaitReplicas)
	}
	return o, nil
}

// longest is how much longer than usual an answer may take.
func (o Options) longest() time.Duration {
	if o.waits() {
		return o.WaitTimeout
	}
	return 0
}

func (o Options) waits() bool { return o.WaitReplicas > 0 || o.WaitAOF }
