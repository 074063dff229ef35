package redis_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	goredis "github.com/redis/go-redis/v9"

	"github.com/walsink/walsink"
	"github.com/walsink/walsink/sinks/redis"
)

// A record of two commands, which the server runs together or not at all, and once,
// however often the flush is repeated.
func Example() {
	count := func(ctx context.Context) (err error) {
		client := goredis.NewClient(&goredis.Options{Addr: "localhost:6379"})
		defer client.Close()
		sink, err := redis.Open(ctx, client, redis.Options{})
		if err != nil {
			return err
		}
		out, err := walsink.Open(ctx, sink, walsink.Options{Dir: "state", ID: "visits"})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, out.Close()) }()

		rec, err := redis.AppendCommands(nil, redis.IncrBy("visits:home", 1), redis.HSet("visit:1", map[string]string{"page": "home"}))
		if err != nil {
			return err
		}
		if err := out.Append(ctx, rec); err != nil {
			return err
		}
		if _, err := out.Checkpoint(ctx, []byte("position 1")); err != nil {
			return err
		}
		return out.Drain(ctx)
	}
	if err := count(context.Background()); err != nil {
		log.Fatal(err)
	}
}

// A document with a member missing makes no record: its key would mix up entries.
func ExampleTemplate() {
	t, err := redis.NewTemplate(redis.Spec{Op: "hincrby", Key: "stock:{shop}", Field: "{item}", Value: "{n}"})
	if err != nil {
		log.Fatal(err)
	}
	for _, doc := range []string{`{"shop":"north","item":"tea","n":3}`, `{"shop":"north","n":3}`} {
		_, err := t.Append(nil, []byte(doc))
		fmt.Println(err == nil, errors.Is(err, redis.ErrMissing))
	}
	// Output:
	// true false
	// false true
}
