package redis

import (
	"context"
	"crypto/rand"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/walsink/walsink/internal/plant"
)

var (
	//go:embed scripts/flush.lua
	flushSource string
	//go:embed scripts/own.lua
	ownSource string
	//go:embed scripts/home.lua
	homeSource string
	//go:embed scripts/slot.lua
	slotSource string
	//go:embed scripts/probe.lua
	probeSource string
	//go:embed scripts/override.lua
	overrideSource string
)

// A script is source that the server knows by its digest.
type script struct{ source, sha string }

func newScript(source string) *script {
	sum := sha1.Sum([]byte(source))
	return &script{source: source, sha: hex.EncodeToString(sum[:])}
}

// scripts are those of one sink.
type scripts struct{ flush, own, home, slot, override *script }

// Parts of the flush script that planted bugs change.
const (
	moved  = "return {nonce, 'moved'}"
	fenced = "return {nonce, 'fenced', m[1]}"
	apply  = "local apply = call"
	store  = "redis.call('HSET', KEYS[1], unpack(set))"
)

func newScripts() scripts {
	flush := flushSource
	if plant.Active(plant.NoFence) {
		flush = strings.NewReplacer(moved, "nonce = nonce", fenced, "nonce = nonce").Replace(flush)
	}
	if plant.Active(plant.RedisLedgerLate) {
		flush = strings.ReplaceAll(flush, apply, "local apply = type")
	}
	return scripts{
		flush: newScript(flush), own: newScript(ownSource), home: newScript(homeSource), slot: newScript(slotSource),
		override: newScript(overrideSource),
	}
}

// dataOnly is the other half of the planted bug of a ledger that is written late.
func dataOnly() *script {
	return newScript(strings.NewReplacer(moved, "nonce = nonce", store, "chain = ''").Replace(flushSource))
}

// run runs s by itself and the commands after it on the same connection, and loads
// s first where the server does not have it.
func (s *script) run(ctx context.Context, c *client, keys []string, after []goredis.Cmder, args ...any) (reply, error) {
	nonce := newNonce()
	all := []any{"evalsha", s.sha, len(keys)}
	for _, k := range keys {
		all = append(all, k)
	}
	all = append(append(all, nonce), args...)
	for try := 0; ; try++ {
		cmd := goredis.NewCmd(ctx, all...)
		pipe := c.Pipeline()
		for _, cmd := range append([]goredis.Cmder{cmd}, after...) {
			pipe.Process(ctx, cmd) //nolint:errcheck // Exec says
		}
		_, _ = pipe.Exec(ctx) // each command has its own error
		err := cmd.Err()
		if try < maxLoads && isNoScript(err) {
			if err = s.load(ctx, c, keys[0]); err == nil {
				continue
			}
		}
		if err != nil {
			return reply{}, err
		}
		return parseReply(cmd.Val(), nonce)
	}
}

// maxLoads is how often in a row a script is loaded for one call, before somebody
// who flushes scripts all the time is left to the engine's back-off.
const maxLoads = 3

// load gives the script to the server that key lives on.
func (s *script) load(ctx context.Context, c *client, key string) error {
	node, err := c.master(ctx, key)
	if err != nil {
		return err
	}
	return node.ScriptLoad(ctx, s.source).Err()
}

func isNoScript(err error) bool { return err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") }

// newNonce returns a value that no other call has.
func newNonce() string { return rand.Text() }

// errAnswer says that an answer belongs to another call, or is not one of our
// scripts'. The connection is not used again.
var errAnswer = errors.New("answer does not belong to the call")

// A reply is the answer of a script.
type reply struct {
	status string
	rest   []any
}

// parseReply takes an answer apart and compares the nonce.
func parseReply(v any, nonce string) (reply, error) {
	list, _ := v.([]any)
	if len(list) < 2 {
		return reply{}, errAnswer
	}
	echo, _ := list[0].(string)
	status, _ := list[1].(string)
	if echo != nonce {
		return reply{}, errAnswer
	}
	return reply{status: status, rest: list[2:]}, nil
}

// text and number return an element of the reply, or the zero value.
func (r reply) text(i int) string {
	if i >= len(r.rest) {
		return ""
	}
	if s, ok := r.rest[i].(string); ok {
		return s
	}
	return fmt.Sprint(r.rest[i])
}

func (r reply) number(i int) int64 {
	if i >= len(r.rest) {
		return 0
	}
	n, _ := r.rest[i].(int64)
	return n
}

func (r reply) list(i int) []any {
	if i >= len(r.rest) {
		return nil
	}
	l, _ := r.rest[i].([]any)
	return l
}
