package checkpoint

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the transcripts as they come out")

// TestTranscripts runs the scripts in testdata. A line is a command; lines that
// begin with a dash are what it returned; everything after # is a comment.
func TestTranscripts(t *testing.T) {
	names, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			got := run(t, string(want))
			if *update {
				if err := os.WriteFile(name, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(want) {
				t.Errorf("transcript differs; got:\n%s", got)
			}
		})
	}
}

// A script holds the machine that the commands are for.
type script struct {
	t     *testing.T
	now   time.Time
	coord *Coordinator
	align *Aligner
}

func run(t *testing.T, text string) string {
	t.Helper()
	s := &script{t: t, now: time.Unix(0, 0).UTC()}
	var out strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "- ") {
			continue
		}
		fmt.Fprintln(&out, line)
		command, _, _ := strings.Cut(line, "#")
		if words := strings.Fields(command); len(words) > 0 {
			for _, reply := range s.do(words) {
				fmt.Fprintln(&out, "- "+reply)
			}
		}
	}
	return out.String()
}

// do runs a command. Times are seconds since the start, given as @N in front.
func (s *script) do(words []string) []string {
	if at, ok := strings.CutPrefix(words[0], "@"); ok {
		d, err := time.ParseDuration(at)
		if err != nil {
			s.t.Fatal(err)
		}
		s.now = time.Unix(0, 0).UTC().Add(d)
		words = words[1:]
	}
	switch {
	case words[0] == "coordinator":
		s.coord = NewCoordinator(s.options(words[1:]), 0, s.now)
		return nil
	case words[0] == "aligner":
		mode := ExactlyOnce
		if words[2] == AtLeastOnce.String() {
			mode = AtLeastOnce
		}
		s.align = NewAligner(s.number(words[1]), mode)
		return nil
	case s.coord != nil:
		return s.coordinate(words)
	}
	return s.aligned(words)
}

func (s *script) options(words []string) Options {
	var o Options
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		d, _ := time.ParseDuration(value)
		n, _ := strconv.Atoi(value)
		switch key {
		case "tasks":
			o.Tasks = n
		case "interval":
			o.Interval = d
		case "records":
			o.Records = uint64(n)
		case "timeout":
			o.Timeout = d
		case "pause":
			o.MinPause = d
		case "concurrent":
			o.MaxConcurrent = n
		case "failures":
			o.MaxFailures = n
		default:
			s.t.Fatalf("option %q", w)
		}
	}
	return o
}

func (s *script) number(w string) int {
	n, err := strconv.Atoi(w)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *script) coordinate(words []string) []string {
	var actions []Action
	var err error
	arg := func(i int) int { return s.number(words[i]) }
	switch words[0] {
	case "request":
		actions = s.coord.Request(s.now)
	case "count":
		actions = s.coord.Count(s.now, uint64(arg(1)))
	case "end":
		actions = s.coord.End(s.now)
	case "tick":
		actions = s.coord.Tick(s.now)
	case "ack":
		actions, err = s.coord.Ack(uint64(arg(1)), arg(2))
	case "decline":
		actions = s.coord.Decline(s.now, uint64(arg(1)), errors.New("disk full"))
	case "stored":
		actions, err = s.coord.Stored(s.now, uint64(arg(1)))
	case "deadline":
		if at, ok := s.coord.Deadline(); ok {
			return []string{fmt.Sprint("at ", at.Sub(time.Unix(0, 0)))}
		}
		return []string{"never"}
	case "pending":
		var ids []uint64
		for _, p := range s.coord.Pending() {
			ids = append(ids, p.ID)
		}
		return []string{fmt.Sprint(ids, " last complete ", s.coord.Last())}
	default:
		s.t.Fatalf("command %q", words)
	}
	if err != nil {
		return []string{"error: " + err.Error()}
	}
	var out []string
	for _, a := range actions {
		text := fmt.Sprint(a.Verb, " ", a.ID)
		if a.Final {
			text += " final"
		}
		if a.Err != nil {
			text += ": " + a.Err.Error()
		}
		out = append(out, text)
	}
	return out
}

func (s *script) aligned(words []string) []string {
	in := s.number(words[1])
	switch words[0] {
	case "barrier":
		if id := s.align.Barrier(in, uint64(s.number(words[2]))); id != 0 {
			return []string{fmt.Sprint("cut ", id)}
		}
	case "record":
		if err := s.align.Record(in); err != nil {
			return []string{"error: " + err.Error()}
		}
	case "end":
		s.align.End(in)
	case "abort":
		s.align.Abort(uint64(in))
	case "held":
		return []string{fmt.Sprint(s.align.Held(in))}
	case "ended":
		return []string{fmt.Sprint(s.align.Ended())}
	default:
		s.t.Fatalf("command %q", words)
	}
	return nil
}
