package wal

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// mappedEnv makes TestFullWhileCreating the process that creates.
const mappedEnv = "WALSINK_WAL_MAPPED"

// TestFullWhileCreating leaves Badger less room than a new generation takes, as another
// program does that fills the disk just then: an error, and not a signal that ends the
// process. It is in a process of its own, since Badger leaves goroutines behind.
func TestFullWhileCreating(t *testing.T) {
	if disk := os.Getenv(mappedEnv); disk != "" {
		createOnFull(t, disk)
		fmt.Println("no signal")
		os.Exit(0)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestFullWhileCreating$")
	cmd.Env = append(os.Environ(), mappedEnv+"="+smallDisk(t, 4))
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "no signal") {
		t.Errorf("%v\n%.2000s", err, out)
	}
}

// createOnFull opens Badger with each number of free pages, until that works.
func createOnFull(t *testing.T, disk string) {
	filler, faults := filepath.Join(disk, "filler"), false
	for free := int64(0); ; free += 4096 {
		fillDisk(t, disk)
		info, err := os.Stat(filler)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(filler, info.Size()-free); err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(disk, fmt.Sprint(free))
		if err := makeDir(dir); err != nil {
			continue
		}
		s := &badgerStore{dir: dir, shape: shapeOf(1<<20, false), writable: true, log: quiet}
		err = s.openBadger()
		if err == nil {
			break
		}
		faults = faults || errors.Is(err, errFault)
	}
	if !faults {
		t.Fatal("no fault")
	}
}
