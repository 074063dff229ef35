package redis

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/walsink/walsink/sinks"
)

// Probe says what the server, or each master of the cluster, really does. It
// writes nothing but the script cache.
func (s *Sink) Probe(ctx context.Context) ([]sinks.Finding, error) {
	infos, err := s.infos(ctx)
	if err != nil {
		return nil, &sinks.Error{Kind: classify(ctx, err, false), Op: "probe", Err: fmt.Errorf("%s: %w", s.info.Target, redact(err))}
	}
	var all []sinks.Finding
	for _, addr := range slices.Sorted(maps.Keys(infos)) {
		for _, f := range s.findings(infos[addr]) {
			if s.control.cluster {
				f.Subject += " of " + addr
			}
			all = append(all, f)
		}
	}
	return append(all, s.rights(ctx)), nil
}

func (s *Sink) findings(in map[string]string) []sinks.Finding {
	return []sinks.Finding{
		version(in), mode(in), eviction(in, s.opts.ForceEviction), persistence(in), replicas(in, s.opts.WaitReplicas),
	}
}

func version(in map[string]string) sinks.Finding {
	f := sinks.Finding{Subject: "version", Found: in["redis_version"], Guarantee: sinks.ExactlyOnce}
	if !atLeast(in["redis_version"], 6, 2) {
		f.Refuse, f.Advice = true, "use Redis 6.2 or newer"
	}
	return f
}

func mode(in map[string]string) sinks.Finding {
	f := sinks.Finding{Subject: "cluster", Found: "no", Guarantee: sinks.ExactlyOnce}
	if in["cluster_enabled"] == "1" {
		f.Found = "yes"
	}
	return f
}

func eviction(in map[string]string, forced bool) sinks.Finding {
	policy := in["maxmemory_policy"]
	f := sinks.Finding{Subject: "maxmemory-policy", Found: policy, Guarantee: sinks.ExactlyOnce}
	if evicts(policy) {
		f.Refuse = !forced
		f.Advice = "the ledger may be evicted: use noeviction or volatile-*"
		if in["maxmemory"] == "0" {
			f.Found += " (maxmemory is not set)"
		}
	}
	return f
}

// persistence is about power cuts and kills of the server: what it loses takes
// the mark with it, and comes again from the log as far as that is retained.
func persistence(in map[string]string) sinks.Finding {
	f := sinks.Finding{Subject: "persistence", Found: "none", Guarantee: sinks.ExactlyOnce}
	switch {
	case in["aof_enabled"] == "1":
		f.Found = "append-only file, appendfsync " + in["config_appendfsync"]
		var advice []string
		if in["config_appendfsync"] != "always" {
			advice = append(advice, "a power cut may lose the last second; it is healed from the log while batches are retained")
		}
		if in["config_aof-load-truncated"] == "yes" {
			advice = append(advice, "set aof-load-truncated no, and run redis-check-aof --fix where the server then refuses to start: "+
				"else a second crash may bring half a flush back, which stops the lane")
		}
		f.Advice = strings.Join(advice, "; ")
	case in["config_save"] != "":
		f.Found = "snapshots"
		f.Advice = "a crash loses what came after the last snapshot; it is healed from the log while batches are retained"
	default:
		f.Advice = "a restart loses everything, the ledger too: switch appendonly on"
	}
	return f
}

func replicas(in map[string]string, wait int) sinks.Finding {
	f := sinks.Finding{Subject: "replicas", Found: in["connected_slaves"], Guarantee: sinks.ExactlyOnce}
	n, _ := strconv.Atoi(in["connected_slaves"])
	switch {
	case in["role"] == "slave":
		f.Found, f.Refuse, f.Advice = "this is a replica", true, "connect to the master"
	case n < wait:
		f.Refuse, f.Advice = true, fmt.Sprintf("WaitReplicas is %d: no step would ever be confirmed", wait)
	case n > 0 && wait == 0:
		f.Advice = "a fail-over may lose the last writes; it is healed from the log while batches are retained"
	}
	return f
}

// rights finds out whether scripts can be run.
func (s *Sink) rights(ctx context.Context) sinks.Finding {
	f := sinks.Finding{Subject: "scripts", Found: "allowed", Guarantee: sinks.ExactlyOnce}
	r, err := newScript("return {ARGV[1], 'ok'}").run(ctx, s.control, []string{s.opts.Prefix + "probe"}, nil)
	if err != nil || r.status != "ok" {
		f.Found, f.Refuse, f.Advice = "refused", true, advice["NOPERM"]
	}
	return f
}
