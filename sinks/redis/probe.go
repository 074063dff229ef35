package redis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/walsink/walsink/sinks"
)

// Probe says what a Sink with these options would meet, also where Open would refuse
// it. An error is a server that cannot be reached or does not let the user in.
func Probe(ctx context.Context, client goredis.UniversalClient, opts Options) (found []sinks.Finding, err error) {
	s, err := newSink(client, opts)
	if err != nil {
		return nil, &sinks.Error{Kind: sinks.Permanent, Op: "probe", Err: err}
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return s.Probe(ctx)
}

// Probe says what the server, or each master of the cluster, really does. What it
// writes to try out the rights is gone when it returns.
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
	return append(all, s.rights(ctx)...), nil
}

func (s *Sink) findings(in map[string]string) []sinks.Finding {
	all := []sinks.Finding{
		version(in), s.waitsAOF(in), s.mode(in), eviction(in, s.opts.ForceEviction), memory(in), persistence(in), truncation(in),
		replicas(in, s.opts.WaitReplicas), minReplicas(in),
	}
	return slices.DeleteFunc(all, func(f sinks.Finding) bool { return f.Subject == "" })
}

// fine is a finding with nothing to change.
func fine(subject, found string) sinks.Finding {
	return sinks.Finding{Subject: subject, Found: found, Guarantee: sinks.ExactlyOnce}
}

// noted is a finding that is good to know about.
func noted(subject, found, advice string) sinks.Finding {
	return sinks.Finding{Subject: subject, Found: found, Guarantee: sinks.ExactlyOnce, Advice: advice}
}

// refused is a finding that nothing should be run with.
func refused(subject, found, advice string) sinks.Finding {
	return sinks.Finding{Subject: subject, Found: found, Guarantee: sinks.AtLeastOnce, Refuse: true, Advice: advice}
}

func version(in map[string]string) sinks.Finding {
	if !atLeast(in["redis_version"], 6, 2) {
		return refused("version", in["redis_version"], "use Redis 6.2 or newer")
	}
	return fine("version", in["redis_version"])
}

func (s *Sink) waitsAOF(in map[string]string) sinks.Finding {
	if s.opts.WaitAOF && !atLeast(in["redis_version"], 7, 2) {
		return refused("waiting for the append-only file", "not in version "+in["redis_version"], "use Redis 7.2 or newer, or do not wait for the append-only file")
	}
	return sinks.Finding{}
}

func (s *Sink) mode(in map[string]string) sinks.Finding {
	cluster := in["cluster_enabled"] == "1"
	switch {
	case cluster && !s.control.cluster:
		return refused("cluster", "yes, and the client is one for a single server", "use a client for a cluster: name several of its hosts")
	case !cluster && s.control.cluster:
		return refused("cluster", "no, and the client is one for a cluster", "use a client for a single server: name one host")
	case !cluster:
		return fine("cluster", "no")
	case in["cluster_state"] != "ok":
		return noted("cluster", "state "+in["cluster_state"], "flushes wait until every slot has a master that is up")
	}
	return fine("cluster", "yes, state ok")
}

func eviction(in map[string]string, forced bool) sinks.Finding {
	policy := in["maxmemory_policy"]
	f := fine("maxmemory-policy", policy)
	if !evicts(policy) {
		return f
	}
	f.Guarantee, f.Refuse = sinks.AtLeastOnce, !forced
	f.Advice = "the ledger may be evicted: use noeviction or volatile-*"
	if in["maxmemory"] == "0" {
		f.Found += " (maxmemory is not set)"
	}
	return f
}

func memory(in map[string]string) sinks.Finding {
	used, _ := strconv.ParseInt(in["used_memory"], 10, 64)
	limit, _ := strconv.ParseInt(in["maxmemory"], 10, 64)
	if limit == 0 {
		return fine("maxmemory", "no limit")
	}
	found := fmt.Sprintf("%d of %d MiB used", used>>20, limit>>20)
	if used > limit/10*9 {
		return noted("maxmemory", found, "when it is used up, writes fail and flushes wait: raise it or remove data")
	}
	return fine("maxmemory", found)
}

// persistence is about power cuts and kills of the server: what it loses takes
// the mark with it, and comes again from the log as far as that is retained, then from
// the source. Only where all is lost, the ledger too, does a person have to decide.
func persistence(in map[string]string) sinks.Finding {
	save, known := in["config_save"]
	switch {
	case in["aof_enabled"] == "1":
		return appendOnly(in)
	case !known:
		return noted("persistence", "no append-only file; the user may not read CONFIG, so whether there are snapshots is not known",
			"a crash takes back what was not saved; it is healed from the log while batches are retained")
	case save != "":
		return noted("persistence", "snapshots",
			"a crash loses what came after the last snapshot; it is healed from the log while batches are retained: better set appendonly yes")
	}
	return sinks.Finding{Subject: "persistence", Found: "none", Guarantee: sinks.AtLeastOnce,
		Advice: "a restart loses everything, the ledger too, and has to be accepted by hand: set appendonly yes"}
}

func appendOnly(in map[string]string) sinks.Finding {
	fsync, known := in["config_appendfsync"]
	if !known {
		fsync = "not known, since the user may not read CONFIG"
	}
	f := fine("persistence", "append-only file, appendfsync "+fsync)
	switch {
	case in["aof_last_write_status"] == "err":
		f.Advice = "the file could not be written last time, and the server takes no writes: look at its disk"
	case fsync == "no":
		f.Advice = "a power cut may lose half a minute; it is healed from the log while batches are retained: better set appendfsync always"
	case fsync != "always":
		f.Advice = "a power cut may lose the last second; it is healed from the log while batches are retained: to be spared that set appendfsync always"
	}
	return f
}

// truncation is about what the server makes of an append-only file that ends in the
// middle of a script's effects.
func truncation(in map[string]string) sinks.Finding {
	if in["aof_enabled"] != "1" || in["config_aof-load-truncated"] != "yes" {
		return sinks.Finding{}
	}
	return noted("aof-load-truncated", "yes", "set it to no, and run redis-check-aof --fix where the server then refuses to start: "+
		"else a second crash may bring half a flush back, which stops the lane")
}

func replicas(in map[string]string, wait int) sinks.Finding {
	n, _ := strconv.Atoi(in["connected_slaves"])
	switch {
	case in["role"] == "slave":
		return refused("replicas", "this is a replica", "connect to the master")
	case n < wait:
		return refused("replicas", in["connected_slaves"], fmt.Sprintf("each step waits for %d: no step would ever be confirmed", wait))
	case n > 0 && wait == 0:
		return noted("replicas", in["connected_slaves"],
			"a fail-over may lose the last writes; it is healed from the log while batches are retained: to be spared that let each step wait for a replica")
	}
	return fine("replicas", in["connected_slaves"])
}

func minReplicas(in map[string]string) sinks.Finding {
	want, _ := strconv.Atoi(in["config_min-replicas-to-write"])
	have, _ := strconv.Atoi(in["connected_slaves"])
	switch {
	case want == 0:
		return sinks.Finding{}
	case have < want:
		return noted("min-replicas-to-write", fmt.Sprint(want), "the server takes no writes, and flushes wait, until so many replicas are connected")
	}
	return fine("min-replicas-to-write", fmt.Sprint(want))
}

// rights finds out whether scripts can be run, and may do what the ledger needs.
func (s *Sink) rights(ctx context.Context) []sinks.Finding {
	key := s.opts.Prefix + "probe:{" + newNonce() + "}:"
	r, err := newScript(probeSource).run(ctx, s.control, []string{key + "hash", key + "list", key + "stream", key + "set"}, nil)
	switch {
	case err != nil && classify(ctx, err, false) == sinks.Permanent:
		return []sinks.Finding{refused("scripts", reason(redact(err).Error()), advice["NOPERM"])}
	case err != nil:
		return []sinks.Finding{noted("scripts", "not tried: "+reason(redact(err).Error()), "flushes wait while the server does not answer")}
	}
	all := []sinks.Finding{fine("scripts", "allowed")}
	for _, f := range r.list(0) {
		name, text, _ := strings.Cut(fmt.Sprint(f), ": ")
		found := name + ": " + reason(text)
		if serverKind(text) == sinks.Transient {
			return append(all, noted("ledger", found, "flushes wait while the server takes no writes"))
		}
		all = append(all, refused("ledger", found, advice["NOPERM"]))
	}
	if len(all) == 1 {
		all = append(all, fine("ledger", "all its commands are allowed"))
	}
	return all
}
