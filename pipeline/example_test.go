package pipeline_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"log"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/walsink/walsink"
	"github.com/walsink/walsink/checkpoint"
	"github.com/walsink/walsink/pipeline"
	"github.com/walsink/walsink/pipeline/state"
	"github.com/walsink/walsink/sinks/file"
	"github.com/walsink/walsink/sources"
)

// A running count per key. Everything it keeps is below dir: kill it at any
// instant, start it again, and neither counts nor output know the difference.
// TestKill in package state does that to the same pipeline.
func ExampleKeyed() {
	dir, err := os.MkdirTemp("", "counts")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	input := filepath.Join(dir, "in.ndjson")
	for _, more := range []string{"{\"user\":\"ann\"}\n{\"user\":\"bob\"}\n{\"user\":\"ann\"}\n", "{\"user\":\"ann\"}\n"} {
		appendTo(input, more)
		if err := countUsers(context.Background(), dir, input); err != nil {
			log.Fatal(err)
		}
	}
	parts, err := filepath.Glob(filepath.Join(dir, "out", "*.ndjson"))
	if err != nil {
		log.Fatal(err)
	}
	for _, part := range parts {
		b, err := os.ReadFile(part)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(string(b))
	}
	// Output:
	// {"user":"ann","count":1}
	// {"user":"bob","count":1}
	// {"user":"ann","count":2}
	// {"user":"ann","count":3}
}

func countUsers(ctx context.Context, dir, input string) error {
	counts, err := state.Open(filepath.Join(dir, "state"), state.Options{})
	if err != nil {
		return err
	}
	defer counts.Close()
	checkpoints, err := checkpoint.OpenDir(filepath.Join(dir, "checkpoints"), 3)
	if err != nil {
		return err
	}
	out, err := file.Open(filepath.Join(dir, "out"), file.Options{})
	if err != nil {
		return err
	}
	p := &pipeline.Pipeline{
		Sources: []pipeline.Input{{Name: "users", Source: sources.NDJSON(input, sources.Options{})}},
		Route:   pipeline.ByField("user"),
		Stages: []pipeline.Stage{
			pipeline.Keyed("count", counts, func(key, _, old []byte, emit pipeline.Emit) ([]byte, error) {
				n, _ := binary.Uvarint(old)
				err := emit(fmt.Appendf(nil, `{"user":%q,"count":%d}`, key, n+1))
				return binary.AppendUvarint(nil, n+1), err
			}),
		},
		Outputs: []pipeline.Sink{
			pipeline.Walsink("counts", out, walsink.Options{Dir: filepath.Join(dir, "log"), ID: "counts"}, file.Line),
		},
		Storage: checkpoints,
		Require: pipeline.ExactlyOnce,
		Logger:  slog.New(slog.DiscardHandler),
	}
	_, err = p.Run(ctx)
	return err
}

func appendTo(name, s string) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := f.WriteString(s); err != nil {
		log.Fatal(err)
	}
	if err := f.Close(); err != nil {
		log.Fatal(err)
	}
}
