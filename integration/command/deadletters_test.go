package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	goredis "github.com/redis/go-redis/v9"

	"github.com/walsink/walsink/integration/servers"
	"github.com/walsink/walsink/internal/crash"
)

// deadRecords is how many records the input of a ward has; a tenth of them is refused.
const deadRecords = 1200

// A ward is a store that refuses a tenth of the records, until it is mended.
type ward struct {
	to     string
	mend   func()
	counts func() map[int]int // how often each record is in, by number, asked of the store itself
}

func postgresWard(t *testing.T) ward {
	t.Helper()
	address := servers.Postgres(t)
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.WithoutCancel(t.Context())) })
	do := func(sql string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	do("create table kinds (id int primary key)")
	do("insert into kinds select generate_series(0, 8)")
	do("create table seen (id int not null, kind int not null references kinds)")
	return ward{
		to:   withQuery(address, "table=seen"),
		mend: func() { do("insert into kinds values (9)") },
		counts: func() map[int]int {
			t.Helper()
			rows, err := conn.Query(t.Context(), "select id, count(*) from seen group by id")
			if err != nil {
				t.Fatal(err)
			}
			defer rows.Close()
			counts := map[int]int{}
			for rows.Next() {
				var id, n int
				if err := rows.Scan(&id, &n); err != nil {
					t.Fatal(err)
				}
				counts[id] = n
			}
			return counts
		},
	}
}

// redisWard counts records, so that one that comes twice shows.
func redisWard(t *testing.T) ward {
	t.Helper()
	address := "redis://" + servers.Redis(t)
	opts, err := goredis.ParseURL(address)
	if err != nil {
		t.Fatal(err)
	}
	c := goredis.NewClient(opts)
	t.Cleanup(func() { _ = c.Close() })
	if err := c.Set(t.Context(), "kind:9", "is no hash", 0).Err(); err != nil {
		t.Fatal(err)
	}
	return ward{
		to: withQuery(address, "op=hincrby&key=kind:{kind}&field={id}"),
		mend: func() {
			t.Helper()
			if err := c.Del(t.Context(), "kind:9").Err(); err != nil {
				t.Fatal(err)
			}
		},
		counts: func() map[int]int {
			t.Helper()
			counts := map[int]int{}
			for kind := range 10 {
				fields, err := c.HGetAll(t.Context(), fmt.Sprintf("kind:%d", kind)).Result()
				if err != nil && !strings.HasPrefix(err.Error(), "WRONGTYPE") {
					t.Fatal(err)
				}
				for field, text := range fields {
					var id, n int
					if _, err := fmt.Sscan(field+" "+text, &id, &n); err != nil {
						t.Fatal(err)
					}
					counts[id] = n
				}
			}
			return counts
		},
	}
}

// exact makes sure that each record is in once, those of kind 9 only if dead is not set,
// and those that were dropped never.
func (w ward) exact(t *testing.T, dead bool, dropped ...int) {
	t.Helper()
	counts := w.counts()
	for id := range deadRecords {
		want := 1
		if dead && id%10 == 9 || slices.Contains(dropped, id) {
			want = 0
		}
		if counts[id] != want {
			t.Fatalf("record %d is in %d times, want %d", id, counts[id], want)
		}
	}
	if len(counts) > deadRecords {
		t.Fatalf("%d records are in, the input has %d", len(counts), deadRecords)
	}
}

// exits runs the command, which must end with a code, and returns its standard output.
func exits(t *testing.T, code int, args ...string) string {
	t.Helper()
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	var out, errs strings.Builder
	cmd := exec.Command(bin, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	if got := cmd.ProcessState.ExitCode(); got != code {
		t.Fatalf("walsink %s: exit code %d, want %d: %v\n%s%s", strings.Join(args[:2], " "), got, code, err, out.String(), errs.String())
	}
	return out.String()
}

// TestDeadLettersReplayedOnce puts records aside that the store refuses, replays them
// while nothing was mended, mends the cause, and kills the replay at each instant that
// has a name before it lets one through: every record is in once, the store says.
func TestDeadLettersReplayedOnce(t *testing.T) {
	for name, open := range map[string]func(*testing.T) ward{"postgres": postgresWard, "redis": redisWard} {
		t.Run(name, func(t *testing.T) {
			w, dir := open(t), t.TempDir()
			in := filepath.Join(dir, "in.ndjson")
			var b strings.Builder
			for i := range deadRecords {
				fmt.Fprintf(&b, "{\"id\":%d,\"kind\":%d}\n", i, i%10)
			}
			if err := os.WriteFile(in, []byte(b.String()), 0o600); err != nil {
				t.Fatal(err)
			}
			place := []string{"--to", w.to, "--state", filepath.Join(dir, "state")}
			deadletters := func(code int, args ...string) string {
				t.Helper()
				return exits(t, code, append(append([]string{"deadletters"}, args...), place...)...)
			}
			walsink(t, append([]string{"run", "--from", "ndjson:" + in, "--dead-letters", "--checkpoint-records", "200", "--checkpoint-interval", "0"}, place...)...)
			w.exact(t, true)

			letters := listed(t, deadletters(0, "list", "--json"))
			if len(letters) != deadRecords/10 {
				t.Fatalf("%d dead letters, want %d", len(letters), deadRecords/10)
			}
			if l := letters[0]; l.Code == "" || l.Reason == "" || l.Checkpoint != 1 || l.Number != 9 || !strings.HasSuffix(l.Lane, "/000") {
				t.Errorf("the first dead letter is %+v", l)
			}
			want(t, deadletters(0, "list"), letters[0].Name)
			want(t, deadletters(0, "show", letters[0].Name), `"record":`)
			deadletters(2, "show", letters[0].Lane+":1:8")
			want(t, deadletters(0, "replay", "--dry-run"), "120 dead letters would be replayed")

			// Nothing was mended: all come back, and none is lost.
			want(t, deadletters(4, "replay"), "120 refused again")
			again := listed(t, deadletters(0, "list", "--json"))
			if len(again) != deadRecords/10 || again[0].Lane == letters[0].Lane {
				t.Fatalf("%d dead letters of lane %s", len(again), again[0].Lane)
			}
			w.exact(t, true)

			// One is given up.
			deadletters(2, "drop")
			want(t, deadletters(0, "drop", again[0].Name, "--dry-run"), "1 dead letter would be dropped")
			want(t, deadletters(0, "drop", again[0].Name), "1 dead letter dropped")
			deadletters(2, "drop", again[0].Name)

			w.mend()
			kills := killReplays(t, w, place)
			deadletters(0, "replay")
			w.exact(t, false, 9)
			want(t, deadletters(0, "list"), "no dead letters")
			want(t, deadletters(0, "replay"), "no dead letters")
			w.exact(t, false, 9)
			if kills < 8 {
				t.Errorf("the replay was killed %d times", kills)
			}
			t.Logf("%d replays killed", kills)
		})
	}
}

// A letterLine is a line of deadletters list --json.
type letterLine struct {
	Name, Lane         string
	Checkpoint, Number uint64
	Code, Reason       string
}

func listed(t *testing.T, out string) (letters []letterLine) {
	t.Helper()
	for line := range strings.Lines(out) {
		var l letterLine
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		letters = append(letters, l)
	}
	return letters
}

// killReplays runs a replay that kills itself at one named instant after the other. After
// each no record may be in twice.
func killReplays(t *testing.T, w ward, place []string) (kills int) {
	t.Helper()
	bin, err := buildCrashing()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []crash.Name{
		crash.FenceRaised, crash.OpenPending, crash.AppendBefore, crash.AppendAfter, crash.SealFooter, crash.SealSynced, crash.CompleteReceived,
		crash.FlushMarkRead, crash.FlushBegun, crash.FlushMarkWritten, crash.FlushSent, crash.FlushAnswered, crash.FlushNoted,
		"flush-sent:2", "flush-answered:2", crash.CloseInside,
	} {
		cmd := exec.Command(bin, append([]string{"deadletters", "replay"}, place...)...)
		cmd.Env = append(os.Environ(), "WALSINK_CRASH="+string(p))
		out, err := cmd.CombinedOutput()
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			if s, ok := exit.Sys().(syscall.WaitStatus); !ok || s.Signal() != syscall.SIGKILL {
				t.Fatalf("%s: %v\n%s", p, err, out)
			}
			kills++
		} else if err != nil {
			t.Fatal(err)
		}
		for id, n := range w.counts() {
			if n > 1 {
				t.Fatalf("%s: record %d is in %d times", p, id, n)
			}
		}
	}
	return kills
}
