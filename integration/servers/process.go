package servers

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/walsink/walsink/faults"
)

// A process is a server started from a binary of this machine, in a directory of
// its own.
type process struct {
	k      kind
	bin    string
	args   []string
	dir    string
	user   *syscall.Credential // nil: as we are
	port   int
	cutter *faults.Cutter // in front of a dedicated one

	pid  int
	done chan struct{} // closed when the process of pid was waited for
}

// startProcess makes a data directory and starts a server in it.
func startProcess(k kind, args []string, dedicated bool) (machine, error) {
	if runtime.GOOS != "linux" {
		return nil, errors.New("local servers need Linux")
	}
	sweepDirs()
	p := &process{k: k, args: k.command(args)}
	if err := p.prepare(); err != nil {
		return nil, errors.Join(err, p.remove())
	}
	if err := p.start(); err != nil {
		return nil, errors.Join(err, p.remove())
	}
	if dedicated {
		var err error
		if p.cutter, err = faults.NewCutter(localAddr(p.port)); err != nil {
			return nil, errors.Join(err, p.remove())
		}
	}
	return p, nil
}

// prepare finds the binary, the user, a port and a directory.
func (p *process) prepare() (err error) {
	find := findPostgres
	if p.k.name == "redis" {
		find = func() (string, error) { return exec.LookPath("redis-server") }
	}
	if p.bin, err = find(); err != nil {
		return err
	}
	if p.user, err = unprivileged(); err != nil {
		return err
	}
	if p.port, err = freePort(); err != nil {
		return err
	}
	if p.dir, err = os.MkdirTemp("", dirPrefix); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(p.dir, "owner"), []byte(self()), 0o600); err != nil {
		return err
	}
	if p.user != nil {
		if err := os.Chown(p.dir, int(p.user.Uid), int(p.user.Gid)); err != nil {
			return err
		}
	}
	if p.k.name == "postgres" {
		return p.initdb()
	}
	return nil
}

func (p *process) initdb() error {
	pw := filepath.Join(p.dir, "password")
	if err := os.WriteFile(pw, []byte(password), 0o644); err != nil { // the directory is 0700
		return err
	}
	cmd := exec.Command(filepath.Join(filepath.Dir(p.bin), "initdb"), "-D", filepath.Join(p.dir, "data"),
		"-U", "postgres", "--pwfile", pw, "--auth", "scram-sha-256", "-E", "UTF8", "--locale", "C", "--no-sync")
	cmd.Dir = p.dir
	cmd.SysProcAttr = childAttr(p.user)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

func (p *process) command() *exec.Cmd {
	port := strconv.Itoa(p.port)
	args := append([]string{"--bind", "127.0.0.1", "--port", port, "--dir", p.dir}, p.args...)
	if p.k.name == "postgres" {
		args = append([]string{"-D", filepath.Join(p.dir, "data"), "-p", port, "-h", "127.0.0.1", "-k", p.dir}, p.args...)
	}
	cmd := exec.Command(p.bin, args...)
	cmd.Dir = p.dir
	cmd.SysProcAttr = childAttr(p.user)
	return cmd
}

func (p *process) addr() string {
	if p.cutter != nil {
		return p.cutter.Addr()
	}
	return localAddr(p.port)
}

// start starts the process from a thread that lives as long as it does, since the
// system kills a child whose starting thread has ended.
func (p *process) start() error {
	log, err := os.OpenFile(filepath.Join(p.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	cmd := p.command()
	cmd.Stdout, cmd.Stderr = log, log
	started := make(chan error)
	p.done = make(chan struct{})
	go func() {
		defer close(p.done)
		defer log.Close()
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	p.pid = cmd.Process.Pid
	return nil
}

// exited returns the end of the log of a process that has ended.
func (p *process) exited() error {
	select {
	case <-p.done:
		log, _ := os.ReadFile(filepath.Join(p.dir, "log"))
		return fmt.Errorf("%s has ended: %s", p.k.name, bytes.TrimSpace(log[max(0, len(log)-1000):]))
	default:
		return nil
	}
}

// stop asks for an orderly shutdown: SIGINT does not wait for clients to leave.
func (p *process) stop() error {
	if p.pid == 0 {
		return nil
	}
	sig := syscall.SIGTERM
	if p.k.name == "postgres" {
		sig = syscall.SIGINT
	}
	return p.end(sig, p.pid)
}

// kill also ends the children at once: without a parent they would go on for a
// moment, and a new Postgres does not start while one of them holds its memory.
func (p *process) kill() error {
	if p.pid == 0 {
		return nil
	}
	_ = syscall.Kill(p.pid, syscall.SIGSTOP) // no new children
	awaitStates(p.pid, "TZX")
	orphans := children(p.pid)
	err := p.end(syscall.SIGKILL, append(orphans, p.pid)...)
	for _, pid := range orphans {
		awaitStates(pid, "ZX")
	}
	return err
}

func (p *process) end(sig syscall.Signal, pids ...int) error {
	err := signalAll(sig, pids...)
	if err == nil {
		<-p.done
		p.pid = 0
	}
	return err
}

func (p *process) pause() error {
	if err := syscall.Kill(p.pid, syscall.SIGSTOP); err != nil {
		return err
	}
	return signalAll(syscall.SIGSTOP, children(p.pid)...)
}

func (p *process) unpause() error {
	return signalAll(syscall.SIGCONT, append(children(p.pid), p.pid)...)
}

// signalAll signals all processes that are still there.
func signalAll(sig syscall.Signal, pids ...int) error {
	for _, pid := range pids {
		if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("signal %d: %w", pid, err)
		}
	}
	return nil
}

func (p *process) disconnect() error {
	p.cutter.Stall()
	return nil
}

func (p *process) connect() error { return p.cutter.Heal() }

func (p *process) remove() error {
	err := p.kill()
	if p.cutter != nil {
		err = errors.Join(err, p.cutter.Close())
	}
	if p.dir == "" {
		return err
	}
	return errors.Join(err, os.RemoveAll(p.dir))
}

const dirPrefix = "walsink-server-"

// sweepDirs removes the directories of owners that are gone. Their servers have
// been ended by the system, see childAttr.
var sweepDirs = sync.OnceFunc(func() {
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), dirPrefix+"*"))
	for _, dir := range dirs {
		if b, err := os.ReadFile(filepath.Join(dir, "owner")); err == nil && ownerGone(string(b)) {
			_ = os.RemoveAll(dir)
		}
	}
})

// findPostgres looks in PATH and where Debian puts it. It returns the real path,
// since initdb is beside it.
func findPostgres() (string, error) {
	if path, err := exec.LookPath("postgres"); err == nil {
		return filepath.EvalSymlinks(path)
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if len(found) == 0 {
		return "", errors.New("no postgres in PATH or /usr/lib/postgresql")
	}
	return slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) }), nil
}

// version is the major version in a path as /usr/lib/postgresql/15/bin/postgres.
func version(path string) int {
	n, _ := strconv.Atoi(strings.Split(path, "/")[4])
	return n
}

// unprivileged returns whom servers run as: Postgres refuses root.
func unprivileged() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		if u, err = user.Lookup("nobody"); err != nil {
			return nil, err
		}
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}
