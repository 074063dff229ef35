package main

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/redis"
)

// openRedis opens redis://HOST/DB?op=OP&key=PATTERN. Options that are not ours are
// go-redis's. Several addresses, with commas between, are a cluster.
func openRedis(ctx context.Context, e endpoint, _ sampler) (opened, error) {
	spec, opts, rest, err := redisOptions(e)
	if err != nil {
		return opened{}, err
	}
	encode, err := redisEncoder(spec)
	if err != nil {
		return opened{}, &usageError{err}
	}
	goredis.SetLogger(silent{})
	client, err := redisClient(e, rest)
	if err != nil {
		return opened{}, err
	}
	sink, err := redis.Open(ctx, client, opts)
	if err != nil {
		_ = client.Close() // nothing was sent over it
		return opened{}, err
	}
	return opened{redisSink{sink, client}, encode}, nil
}

func probeRedis(ctx context.Context, e endpoint) (found []sinks.Finding, err error) {
	spec, opts, rest, err := redisOptions(e)
	if err != nil {
		return nil, err
	}
	if _, err := redisEncoder(spec); err != nil {
		return nil, &usageError{err}
	}
	goredis.SetLogger(silent{})
	client, err := redisClient(e, rest)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	return redis.Probe(ctx, client, opts)
}

// checkRedis is what can be said of a DST without opening it.
func checkRedis(e endpoint) error {
	spec, _, rest, err := redisOptions(e)
	if err != nil {
		return err
	}
	if _, err := redisEncoder(spec); err != nil {
		return &usageError{err}
	}
	client, err := redisClient(e, rest)
	if err != nil {
		return err
	}
	_ = client.Close() // it has connected to nothing
	return nil
}

// silent keeps the client's own log away: what matters comes as an error.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// redisSink is a sink that owns the client it was made from.
type redisSink struct {
	*redis.Sink
	client goredis.UniversalClient
}

func (s redisSink) Close() error {
	err := s.Sink.Close()
	_ = s.client.Close() // the sink has connections of its own
	return err
}

func redisOptions(e endpoint) (redis.Spec, redis.Options, url.Values, error) {
	q := e.options()
	spec := redis.Spec{
		Op: q.text("op", "set"), Key: q.text("key", ""), Value: q.text("value", ""), Field: q.text("field", ""), Score: q.text("score", ""),
	}
	opts := redis.Options{
		Prefix:        q.text("prefix", ""),
		ForceEviction: q.flag("force-eviction", false),
		WaitReplicas:  q.count("wait-replicas"),
		WaitAOF:       q.flag("wait-aof", false),
		WaitTimeout:   q.duration("wait-timeout", time.Second),
	}
	if q.err == nil && spec.Key == "" {
		q.fail("key", "is missing: the key of each record, a pattern such as user:{id}")
	}
	return spec, opts, q.left, q.err
}

// redisEncoder makes an encoder for several goroutines of the template, which is
// for one.
func redisEncoder(spec redis.Spec) (func(dst, rec []byte) ([]byte, error), error) {
	if _, err := redis.NewTemplate(spec); err != nil {
		return nil, err
	}
	templates := sync.Pool{New: func() any {
		t, _ := redis.NewTemplate(spec) // it was good a moment ago
		return t
	}}
	return func(dst, rec []byte) ([]byte, error) {
		t := templates.Get().(*redis.Template)
		defer templates.Put(t)
		return t.Append(dst, rec)
	}, nil
}

// redisClient makes the client. Its errors hold no part of the address.
func redisClient(e endpoint, rest url.Values) (goredis.UniversalClient, error) {
	address := e.scheme + ":" + e.path
	if strings.Contains(e.path, ",") {
		first, others, _ := strings.Cut(address, ",")
		for addr := range strings.SplitSeq(others, ",") {
			rest.Add("addr", strings.Trim(addr, "/"))
		}
		opts, err := goredis.ParseClusterURL(first + "?" + rest.Encode())
		if err != nil {
			return nil, addressError(e, rest, "go-redis")
		}
		return goredis.NewClusterClient(opts), nil
	}
	if len(rest) > 0 {
		address += "?" + rest.Encode()
	}
	opts, err := goredis.ParseURL(address)
	if err != nil {
		return nil, addressError(e, rest, "go-redis")
	}
	return goredis.NewClient(opts), nil
}

// redisName: the ledger is per database, so what is written tells jobs apart.
func redisName(e endpoint) string {
	op := e.query.Get("op")
	if op == "" {
		op = "set"
	}
	return safeName(op + "-" + e.query.Get("key"))
}

// redisWhere is hosts, database and what is written.
func redisWhere(e endpoint) (string, error) {
	address := e.path
	if i := strings.LastIndexByte(address, '@'); i >= 0 {
		address = "//" + address[i+1:]
	}
	hosts := strings.Split(strings.TrimPrefix(address, "//"), ",")
	slices.Sort(hosts)
	return "//" + strings.Join(hosts, ",") + "?" + redisName(e), nil
}
