package walsink_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strconv"

	"github.com/walsink/walsink"
	"github.com/walsink/walsink/sinks/file"
)

// A source of numbered events, read again from where the output says: run it,
// kill it, run it again, and each event is in the files once.
func Example() {
	dir, err := os.MkdirTemp("", "walsink")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	for range 2 { // the second run finds everything done
		if err := run(context.Background(), dir); err != nil {
			log.Fatal(err)
		}
	}
	parts, err := filepath.Glob(filepath.Join(dir, "out", "*.ndjson"))
	if err != nil {
		log.Fatal(err)
	}
	for _, name := range parts {
		data, err := os.ReadFile(name)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(string(data))
	}
	// Output:
	// resuming at 0
	// resuming at 3
	// {"event":0}
	// {"event":1}
	// {"event":2}
}

type event struct {
	Event int `json:"event"`
}

func run(ctx context.Context, dir string) (err error) {
	sink, err := file.Open(filepath.Join(dir, "out"), file.Options{})
	if err != nil {
		return err
	}
	out, err := walsink.Open(ctx, sink, walsink.Options{Dir: filepath.Join(dir, "state"), ID: "events"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()

	lane, err := out.Lane(ctx, walsink.DefaultLane)
	if err != nil {
		return err
	}
	events := walsink.NewTyped(lane, file.JSON[event])
	next, _ := strconv.Atoi(string(out.Position())) // nil, the beginning, is 0
	fmt.Println("resuming at", next)
	for ; next < 3; next++ {
		if err := events.Append(ctx, event{next}); err != nil {
			return err
		}
	}
	if _, err := out.Checkpoint(ctx, strconv.AppendInt(nil, int64(next), 10)); err != nil {
		return err
	}
	return out.Drain(ctx)
}
