//go:build linux

package file

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

const nobody = 65534

// asNobody gives the job to a user without rights of its own; root is refused nothing.
func (r *rig) asNobody() {
	r.t.Helper()
	if os.Geteuid() != 0 {
		r.t.Skip("needs root, to take away what an owner could give itself back")
	}
	chmod(r.t, binDir, 0o755)
	chmod(r.t, filepath.Dir(r.dir), 0o755)
	r.attr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	err := filepath.WalkDir(r.dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, nobody, nobody)
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

// TestRefuseWithoutRights takes the rights on one thing after the other: each is
// named, with its own exit code, and with the rights back the job goes on. F03.
func TestRefuseWithoutRights(t *testing.T) {
	tests := []struct {
		name string
		path func(r *rig) string
		code int
		text string
	}{
		{"source", func(r *rig) string { return r.input }, exitInput, "permission denied"},
		{"output", func(r *rig) string { return r.out }, exitStore, "permission denied"},
		{"ledger", func(r *rig) string { return filepath.Join(r.out, ".walsink") }, exitStore, "permission denied"},
		{"state", func(r *rig) string { return r.state }, exitState, "permission denied"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, normalBuild)
			in := newInput(t, r.input, 100)
			r.asNobody()
			r.run().want(t, exitOK)
			in.grow(t, 100)
			path := tt.path(r)
			give(t, path, 0)
			chmod(t, path, 0o700)
			r.run().want(t, tt.code, filepath.Base(path), tt.text, "what to do: ")
			give(t, path, nobody)
			r.run().want(t, exitOK, "100 records were committed before")
			r.exact(in.lines)
		})
	}
}

// give changes the owner.
func give(t *testing.T, path string, uid int) {
	t.Helper()
	if err := os.Chown(path, uid, uid); err != nil {
		t.Fatal(err)
	}
}

func chmod(t *testing.T, path string, mode fs.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// TestModes: the state is for its owner only, whatever the umask; parts are as asked
// for.
func TestModes(t *testing.T) {
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	r := newRig(t, normalBuild)
	r.opts = "mode=0640"
	newInput(t, r.input, 100)
	r.run().want(t, exitOK)
	for root, want := range map[string]fs.FileMode{r.state: 0o600, filepath.Join(r.out, ".walsink"): 0o600} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			allowed := want
			if d.IsDir() {
				allowed |= 0o100
			}
			if info.Mode().Perm()&^allowed != 0 {
				t.Errorf("%s has mode %v", path, info.Mode())
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	parts, err := filepath.Glob(filepath.Join(r.out, "*+*"))
	if err != nil || len(parts) != 1 {
		t.Fatalf("parts %v, %v", parts, err)
	}
	if info, err := os.Stat(parts[0]); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("part: %v, %v", info.Mode(), err)
	}
}
