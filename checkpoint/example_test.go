package checkpoint_test

import (
	"fmt"
	"time"

	"github.com/walsink/walsink/checkpoint"
)

// The coordinator says what to do and keeps no clock of its own: the caller tells it the
// time, does what it says, and reports back.
func ExampleCoordinator() {
	now := time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC)
	c := checkpoint.NewCoordinator(checkpoint.Options{Interval: time.Second, Tasks: 2}, 0, now)
	show := func(actions []checkpoint.Action, err error) {
		for _, a := range actions {
			fmt.Println(a.Verb, a.ID)
		}
		if err != nil {
			fmt.Println(err)
		}
	}
	show(c.Count(now, 10), nil)
	now = now.Add(time.Second)
	show(c.Tick(now), nil)
	show(c.Ack(1, 0))
	show(c.Ack(1, 1)) // the last one: it can be stored
	show(c.Stored(now, 1))
	fmt.Println("complete:", c.Last())
	// Output:
	// trigger 1
	// store 1
	// complete 1
	// complete: 1
}
