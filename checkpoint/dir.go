package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Dir is Storage in a directory of a local file system that honours fsync. Each
// snapshot is a file that appears whole, by rename. One process at a time may use
// the directory; Dir does not lock it.
type Dir struct {
	path   string
	retain int
}

const (
	filePrefix = "checkpoint-"
	tempSuffix = ".tmp"
)

// OpenDir opens or makes the directory, mode 0700, and removes what a crash left
// half written. Retain is the number of snapshots to keep; less than 1 means 3.
func OpenDir(path string, retain int) (*Dir, error) {
	if retain < 1 {
		retain = 3
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("open checkpoint directory: %w", err)
	}
	d := &Dir{path: path, retain: retain}
	temps, err := filepath.Glob(filepath.Join(escapeGlob(path), filePrefix+"*"+tempSuffix))
	if err != nil {
		return nil, fmt.Errorf("open checkpoint directory %s: %w", path, err)
	}
	for _, name := range temps {
		if err := os.Remove(name); err != nil {
			return nil, fmt.Errorf("open checkpoint directory: %w", err)
		}
	}
	return d, syncDir(filepath.Dir(path))
}

// Save writes and syncs a file, gives it its name, syncs the directory, and
// removes snapshots beyond the retained number.
func (d *Dir) Save(_ context.Context, s Snapshot) (uint64, error) {
	name := d.file(s.ID)
	if err := writeSynced(name+tempSuffix, encode(s)); err != nil {
		return 0, fmt.Errorf("save checkpoint %d: %w", s.ID, err)
	}
	if err := os.Rename(name+tempSuffix, name); err != nil {
		return 0, fmt.Errorf("save checkpoint %d: %w", s.ID, err)
	}
	if err := syncDir(d.path); err != nil {
		return 0, fmt.Errorf("save checkpoint %d: %w", s.ID, err)
	}
	return d.prune(s.ID)
}

// Load returns the newest snapshot that is whole, and what is wrong with the
// newer ones. They stay where they are until they fall out of the retained
// number. A newer one that cannot be read, or is of a newer format, is an error.
func (d *Dir) Load(context.Context) (Snapshot, []error, error) {
	ids, err := d.list()
	if err != nil {
		return Snapshot{}, nil, fmt.Errorf("load checkpoint: %w", err)
	}
	var damaged []error
	for _, id := range slices.Backward(ids) {
		s, err := d.read(id)
		if err == nil {
			return s, damaged, nil
		}
		if errors.Is(err, ErrVersion) {
			return Snapshot{}, damaged, err
		}
		if !errors.Is(err, ErrCorrupt) {
			return Snapshot{}, damaged, fmt.Errorf("%w; a checkpoint is passed over only if its bytes are damaged: "+
				"start again, or move the file away if it is lost", err)
		}
		damaged = append(damaged, err)
	}
	if len(damaged) > 0 {
		return Snapshot{}, damaged, fmt.Errorf("load checkpoint: none of %d in %s can be read: %w",
			len(damaged), d.path, damaged[0])
	}
	return Snapshot{}, nil, nil
}

func (d *Dir) read(id uint64) (Snapshot, error) {
	b, err := os.ReadFile(d.file(id))
	if err != nil {
		return Snapshot{}, fmt.Errorf("read checkpoint %d: %w", id, err)
	}
	s, err := decode(b)
	if err != nil {
		return Snapshot{}, fmt.Errorf("read checkpoint %d: %s: %w", id, d.file(id), err)
	}
	if s.ID != id {
		return Snapshot{}, fmt.Errorf("read checkpoint %d: %s holds checkpoint %d: %w", id, d.file(id), s.ID, ErrCorrupt)
	}
	return s, nil
}

func (d *Dir) file(id uint64) string {
	return filepath.Join(d.path, fmt.Sprintf("%s%020d", filePrefix, id))
}

// list returns the ids of the stored snapshots, ascending.
func (d *Dir) list() ([]uint64, error) {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return nil, err
	}
	var ids []uint64
	for _, e := range entries {
		digits, ok := strings.CutPrefix(e.Name(), filePrefix)
		if id, err := strconv.ParseUint(digits, 10, 64); ok && err == nil {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

// prune removes the oldest files. One that cannot be removed is only in the way
// of space, so the next prune tries again.
func (d *Dir) prune(newest uint64) (uint64, error) {
	ids, err := d.list()
	if err != nil {
		return 0, fmt.Errorf("prune checkpoints: %w", err)
	}
	for len(ids) > d.retain && ids[0] < newest {
		if err := os.Remove(d.file(ids[0])); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, fmt.Errorf("prune checkpoints: %w", err)
		}
		ids = ids[1:]
	}
	return ids[0], nil
}

func writeSynced(name string, b []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func escapeGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}
