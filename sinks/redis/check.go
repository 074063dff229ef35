package redis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	goredis "github.com/redis/go-redis/v9"

	"github.com/walsink/walsink/sinks"
)

// Validate says whether the sink will take rec: that it is a record of this
// package, that no command of it touches a key of the ledger, and, in a cluster,
// that all its keys live in one slot, which must be known. It does no I/O. An
// Append that has been validated cannot become a poison record for its form.
func (s *Sink) Validate(rec []byte) error {
	v, ok := s.views.Get().(*view)
	if !ok {
		v = new(view)
	}
	err := s.validate(v, unsafe.String(unsafe.SliceData(rec), len(rec))) // it does not outlive the call
	v.forget()
	s.views.Put(v)
	return err
}

func (s *Sink) validate(v *view, rec string) error {
	if err := v.parse(rec); err != nil {
		return err
	}
	if err := s.ownKeys(v); err != nil {
		return err
	}
	if s.control.cluster {
		_, err := oneSlot(v)
		return err
	}
	return nil
}

// ownKeys refuses a record that touches the ledger.
func (s *Sink) ownKeys(v *view) error {
	start := 0
	for i, end := range v.ends {
		if args := v.args[start:end]; v.spec[i].touches(args, s.opts.Prefix) {
			return fmt.Errorf("%w: %s of a key of the ledger (prefix %q)", ErrCommand, args[0], s.opts.Prefix)
		}
		start = end
	}
	return nil
}

// oneSlot is the slot of all keys of a record.
func oneSlot(v *view) (uint16, error) {
	slot := -1
	for spec, args := range v.commands() {
		for key := range spec.keys(args) {
			s := int(slotOf(key))
			if slot >= 0 && s != slot {
				return 0, fmt.Errorf("%w: %s: keys of the record are in slots %d and %d; give them one hash tag",
					ErrCommand, args[0], slot, s)
			}
			slot = s
		}
	}
	return uint16(slot), nil
}

// errSettings is about settings that would break a promise without a word.
var errSettings = errors.New("server settings")

// check looks at what the server is, once. A server that does not answer is looked
// at again next time.
func (s *Sink) check(ctx context.Context) error {
	if s.checked.Load() {
		return nil
	}
	infos, err := s.infos(ctx)
	for addr, in := range infos {
		if err := s.suits(in); err != nil {
			return &sinks.Error{Kind: sinks.Permanent, Op: "open", Err: fmt.Errorf("redis %s: %w", addr, err)}
		}
	}
	if err != nil && len(infos) == 0 {
		return &sinks.Error{Kind: classify(ctx, err, false), Op: "open", Err: fmt.Errorf("%s: %w", s.info.Target, redact(err))}
	}
	s.checked.Store(err == nil) // a shard that is down is looked at next time
	return nil
}

func (s *Sink) suits(in map[string]string) error {
	cluster := in["cluster_enabled"] == "1"
	if cluster != s.control.cluster {
		return fmt.Errorf("%w: cluster mode is %v there: use a client for %s", errSettings, cluster,
			map[bool]string{true: "a cluster, with several hosts", false: "a single server, with one host"}[cluster])
	}
	if policy := in["maxmemory_policy"]; evicts(policy) && !s.opts.ForceEviction {
		return fmt.Errorf("%w: maxmemory-policy %s may evict the ledger: use noeviction or volatile-*, or force it", errSettings, policy)
	}
	if s.opts.WaitAOF && !atLeast(in["redis_version"], 7, 2) {
		return fmt.Errorf("%w: WAITAOF needs Redis 7.2, this is %s", errSettings, in["redis_version"])
	}
	return nil
}

// evicts reports whether a policy may remove a key without an expiry.
func evicts(policy string) bool { return strings.HasPrefix(policy, "allkeys-") }

func atLeast(version string, major, minor int) bool {
	a, rest, _ := strings.Cut(version, ".")
	b, _, _ := strings.Cut(rest, ".")
	x, _ := strconv.Atoi(a)
	y, _ := strconv.Atoi(b)
	return x > major || x == major && y >= minor
}

// infos returns what INFO says, of each master of a cluster, by address.
func (s *Sink) infos(ctx context.Context) (map[string]map[string]string, error) {
	all := make(map[string]map[string]string)
	var mu sync.Mutex
	read := func(ctx context.Context, addr string, c *goredis.Client) error {
		text, err := c.Info(ctx).Result()
		if err != nil {
			return err
		}
		in := parseInfo(text)
		for _, name := range []string{"save", "appendfsync", "aof-load-truncated", "min-replicas-to-write"} {
			if v, err := c.ConfigGet(ctx, name).Result(); err == nil { // a user may have no right to it
				in["config_"+name] = v[name]
			}
		}
		if in["cluster_enabled"] == "1" {
			if text, err := c.ClusterInfo(ctx).Result(); err == nil {
				maps.Copy(in, parseInfo(text))
			}
		}
		mu.Lock()
		defer mu.Unlock()
		all[addr] = in
		return nil
	}
	var err error
	switch c := s.control.UniversalClient.(type) {
	case *goredis.Client:
		err = read(ctx, s.info.Target, c)
	case *goredis.ClusterClient:
		err = c.ForEachMaster(ctx, func(ctx context.Context, c *goredis.Client) error {
			return read(ctx, c.Options().Addr, c)
		})
	}
	return all, err
}

func parseInfo(text string) map[string]string {
	in := make(map[string]string)
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			in[k] = v
		}
	}
	return in
}
