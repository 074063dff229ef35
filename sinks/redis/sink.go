package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"

	goredis "github.com/redis/go-redis/v9"

	"github.com/walsink/walsink/internal/crash"
	"github.com/walsink/walsink/sinks"
)

// errReplay says that what comes again is not what came before.
var errReplay = errors.New("the replay differs: restore the log, or open accepting duplicates")

var errClient = errors.New("redis: want a *redis.Client or a *redis.ClusterClient: a ring spreads keys without the server's knowledge")

// stepBytes is how much goes in one step. It bounds what is in memory and on the
// connection, not how long the server is kept: a step is cut into chunks.
const stepBytes = 2 << 20

// A Sink writes records to a Redis server or cluster. It implements sinks.Sink,
// sinks.Ledger and sinks.Prober. All methods are safe for concurrent use.
type Sink struct {
	from    goredis.UniversalClient // the caller's; only its options are used
	opts    Options
	info    sinks.Info
	scripts scripts
	control *client // for everything that is not about an acquired lane
	checked atomic.Bool
	views   sync.Pool // of *view, for Validate
}

// Open makes a sink of client, which must be a *redis.Client (a failover client
// included) or a *redis.ClusterClient. Clients of the sink's own are made from its
// options; client itself is neither used nor closed. A server that cannot be
// reached is no error, since the log is the buffer: it is checked at the first
// Acquire. A server that answers, and whose settings would break the promise, is
// refused.
func Open(ctx context.Context, client goredis.UniversalClient, opts Options) (*Sink, error) {
	s, err := newSink(client, opts)
	if err != nil {
		return nil, err
	}
	if err := s.check(ctx); err != nil && sinks.KindOf(err) == sinks.Permanent {
		return nil, errors.Join(err, s.control.Close())
	}
	return s, nil
}

// newSink is Open without a look at the server.
func newSink(client goredis.UniversalClient, opts Options) (*Sink, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	control, err := dial(client, 4, 0)
	if err != nil {
		return nil, err
	}
	if control.cluster && opts.waits() {
		return nil, errors.Join(errors.New("redis: WaitReplicas and WaitAOF are for single servers"), control.Close())
	}
	s := &Sink{from: client, opts: opts, scripts: newScripts(), control: control}
	s.info = sinks.Info{
		Name: "redis", Target: target(client), Guarantee: sinks.ExactlyOnce, Format: Format,
		StepBytes: stepBytes, Chunked: true,
	}
	return s, nil
}

// target is where the records go, without user and password.
func target(client goredis.UniversalClient) string {
	switch c := client.(type) {
	case *goredis.Client:
		return fmt.Sprintf("redis://%s/%d", c.Options().Addr, c.Options().DB)
	case *goredis.ClusterClient:
		return "redis-cluster://" + strings.Join(c.Options().Addrs, ",")
	}
	return "redis"
}

// Info describes the sink.
func (s *Sink) Info() sinks.Info { return s.info }

// Close closes the sink's own connections. The caller's client stays open.
func (s *Sink) Close() error {
	s.control.sever()
	if err := s.control.Close(); err != nil && !errors.Is(err, goredis.ErrClosed) && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("close redis: %w", err)
	}
	return nil
}

// Acquire takes the lane over, see sinks.Sink. In a cluster it also fences the
// slots that an unfinished step of the former owner has named.
func (s *Sink) Acquire(ctx context.Context, id sinks.LaneID) (sinks.Lane, sinks.Mark, error) {
	fail := func(kind sinks.Kind, err error) (sinks.Lane, sinks.Mark, error) {
		return nil, sinks.Mark{}, &sinks.Error{Kind: kind, Op: "acquire", Lane: id, Err: err}
	}
	if err := id.Validate(); err != nil {
		return fail(sinks.Permanent, err)
	}
	if err := s.check(ctx); err != nil {
		return fail(sinks.KindOf(err), err)
	}
	base := s.newBase(id)
	if err := base.enlist(ctx); err != nil {
		return fail(classify(ctx, err, true), redact(err))
	}
	var lane interface {
		sinks.Lane
		acquire(context.Context) (sinks.Mark, error)
	} = &lane{base: base}
	if s.control.cluster {
		lane = &clusterLane{base: base}
	}
	mark, err := lane.acquire(ctx)
	if err != nil {
		return nil, sinks.Mark{}, errors.Join(err, lane.Close())
	}
	crash.Point(crash.FenceRaised)
	return lane, mark, nil
}

// Keys of the ledger of one lane. All but lanes share a hash tag.
type keys struct {
	mark, audit, dead string
	slots             string // the slot table, in a cluster
	lanes             string // of the sink id
}

func (o Options) keys(id sinks.LaneID) keys {
	tag := "{" + id.String() + "}"
	return keys{
		mark:  o.Prefix + "mark:" + tag,
		audit: o.Prefix + "audit:" + tag,
		dead:  o.Prefix + "dead:" + tag,
		slots: o.Prefix + "slots:" + tag,
		lanes: o.Prefix + "lanes:" + id.Sink,
	}
}
