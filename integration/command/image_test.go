package command

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestImage makes the last stage of deploy/Dockerfile from a binary built here, and runs it
// as nobody on a read-only root file system, twice. The records come out of its volume.
func TestImage(t *testing.T) {
	if err := exec.Command("docker", "version").Run(); err != nil {
		t.Skipf("no Docker daemon: %v", err)
	}
	const root = "../.."
	dir := t.TempDir()
	text, err := os.ReadFile(filepath.Join(root, "deploy", "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	_, last, ok := strings.Cut(string(text), "\nFROM ${BASE}\n")
	if !ok {
		t.Fatal("the Dockerfile has no last stage")
	}
	last = strings.ReplaceAll("ARG BASE=scratch\nFROM ${BASE}\n"+last, "--from=build ", "")
	last = strings.ReplaceAll(last, " /image/", " image/")
	for _, d := range []string{"usr/bin", "etc/ssl/certs", "var/lib/walsink", "out"} {
		if err := os.MkdirAll(filepath.Join(dir, "image", d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte(last), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(dir, "image/usr/bin/walsink"), root+"/cmd/walsink")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	name := fmt.Sprintf("walsink-image-test-%d", os.Getpid())
	docker := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("docker", args...).CombinedOutput()
		if err != nil {
			t.Fatalf("docker %s: %v\n%s", args[0], err, out)
		}
		return string(out)
	}
	docker("build", "-q", "-t", name, dir)
	t.Cleanup(func() {
		for _, args := range [][]string{{"rm", "-f", name}, {"volume", "rm", name + "-state", name + "-out"}, {"rmi", name}} {
			if out, err := exec.Command("docker", args...).CombinedOutput(); err != nil {
				t.Errorf("docker %s: %v\n%s", strings.Join(args, " "), err, out)
			}
		}
	})
	data, err := filepath.Abs(filepath.Join(root, "examples", "data"))
	if err != nil {
		t.Fatal(err)
	}
	for i, wanted := range []string{"1,707 records", "nothing new"} {
		if i > 0 {
			docker("rm", name)
		}
		want(t, docker("run", "--name", name, "--read-only", "--network", "none", "--cap-drop", "ALL", "--security-opt", "no-new-privileges",
			"-v", name+"-state:/var/lib/walsink", "-v", name+"-out:/out", "-v", data+":/data:ro", name,
			"run", "--from", "ndjson:/data/earthquakes.ndjson", "--to", "file:/out/earthquakes"), wanted)
	}
	docker("cp", name+":/out/earthquakes", filepath.Join(dir, "got"))
	parts, err := filepath.Glob(filepath.Join(dir, "got", "*.ndjson"))
	if err != nil {
		t.Fatal(err)
	}
	var got []byte
	for _, part := range parts {
		b, err := os.ReadFile(part)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, b...)
	}
	wanted, err := os.ReadFile(filepath.Join(data, "earthquakes.ndjson"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, wanted) {
		t.Errorf("%d bytes came out, want %d", len(got), len(wanted))
	}
}
