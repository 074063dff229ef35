package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/spf13/pflag"

	"github.com/walsink/walsink/cmd/walsink/monitor"
)

const (
	unitFile     = "../../deploy/systemd/walsink@.service"
	manifestFile = "../../deploy/kubernetes/walsink.yaml"
	dockerFile   = "../../deploy/Dockerfile"
)

// unit returns the values of each key of the systemd unit, and its comments.
func unit(t *testing.T) (keys map[string][]string, comments string) {
	t.Helper()
	keys = map[string][]string{}
	for line := range strings.Lines(read(t, unitFile)) {
		line = strings.TrimSpace(line)
		if text, ok := strings.CutPrefix(line, "#"); ok {
			comments += text
		} else if key, value, ok := strings.Cut(line, "="); ok {
			keys[key] = append(keys[key], value)
		}
	}
	return keys, comments
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// accepted parses a command line of run as the command does, and checks the job with
// walsink validate. It returns the flags.
func accepted(t *testing.T, args []string) *pflag.FlagSet {
	t.Helper()
	a := &app{in: strings.NewReader(""), out: io.Discard, err: io.Discard}
	cmd, rest, err := a.rootCommand().Find(args)
	if err != nil || cmd.Name() != "run" {
		t.Fatalf("%q is not a walsink run: %v", args, err)
	}
	if err := cmd.ParseFlags(rest); err != nil || cmd.Flags().NArg() > 0 {
		t.Fatalf("%q: %v, left %q", args, err, cmd.Flags().Args())
	}
	var errs bytes.Buffer
	if c := run(append([]string{"validate"}, rest...), strings.NewReader(""), io.Discard, &errs); c != codeOK {
		t.Fatalf("%q: exit code %d: %s", args, c, &errs)
	}
	return cmd.Flags()
}

func config(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// drainOf is the drain bound of a command line.
func drainOf(t *testing.T, flags *pflag.FlagSet) time.Duration {
	t.Helper()
	d, err := flags.GetDuration("drain-timeout")
	if err != nil || !flags.Changed("drain-timeout") {
		t.Fatalf("--drain-timeout is not set: %v", err)
	}
	return d
}

func TestUnitFitsTheCommand(t *testing.T) {
	keys, comments := unit(t)
	one := func(key string) string {
		if len(keys[key]) != 1 {
			t.Fatalf("%s is there %d times", key, len(keys[key]))
		}
		return keys[key][0]
	}
	dir := t.TempDir()
	name := config(t, "from: ndjson:"+dir+"/in.ndjson\nto: file:"+dir+"/out\n")
	line := strings.NewReplacer("%d/config.yaml", name, "%i", "orders").Replace(one("ExecStart"))
	words := strings.Fields(line)
	flags := accepted(t, words[1:])

	stop, err := strconv.Atoi(one("TimeoutStopSec"))
	if drain := drainOf(t, flags); err != nil || time.Duration(stop)*time.Second < drain+10*time.Second {
		t.Errorf("TimeoutStopSec=%d is not well above --drain-timeout %v", stop, drain)
	}
	if want := "/var/lib/" + strings.ReplaceAll(one("StateDirectory"), "%i", "orders"); flags.Lookup("state").Value.String() != want {
		t.Errorf("--state is %s, the state directory %s", flags.Lookup("state").Value, want)
	}
	// Only what a person has to answer keeps it from being restarted.
	want := fmt.Sprint(codeUsage, codeFenced, codeLedger, codeGuarantee)
	if got := one("RestartPreventExitStatus"); got != want {
		t.Errorf("RestartPreventExitStatus=%s, want %s", got, want)
	}
	if got := one("SuccessExitStatus"); got != fmt.Sprint(codeInterrupted) {
		t.Errorf("SuccessExitStatus=%s", got)
	}
	for _, c := range codes {
		said := regexp.MustCompile(fmt.Sprintf(`\b%d (\w+)`, c.code)).FindStringSubmatch(comments)
		if strings.Contains(" "+want+" ", fmt.Sprintf(" %d ", c.code)) && (said == nil || !strings.HasPrefix(c.name, said[1])) {
			t.Errorf("the comments do not say that %d is %s", c.code, c.name)
		}
	}
}

func TestUnitIsVerified(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("no systemd-analyze")
	}
	text := strings.Replace(read(t, unitFile), "/usr/local/bin/walsink", "/bin/true", 1) // it must exist
	name := filepath.Join(t.TempDir(), "walsink@orders.service")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"verify", "--man=no", name}, {"security", "--offline=true", "--threshold=20", name}} {
		out, err := exec.CommandContext(t.Context(), "systemd-analyze", args...).CombinedOutput()
		if err != nil || args[0] == "verify" && len(out) > 0 {
			t.Errorf("systemd-analyze %s: %v\n%s", args[0], err, out)
		}
	}
}

// A manifest is the part of a Kubernetes object that is compared with the command.
type manifest struct {
	Kind     string
	Metadata struct{ Name string }
	Data     map[string]string
	Spec     struct {
		Replicas    int
		ServiceName string `yaml:"serviceName"`
		Ports       []struct{ Port int }
		Template    struct {
			Spec struct {
				Grace      int `yaml:"terminationGracePeriodSeconds"`
				Containers []struct {
					Args  []string
					Ports []struct {
						Name string
						Port int `yaml:"containerPort"`
					}
					Live, Ready probed
					Mounts      []struct {
						Name string
						Path string `yaml:"mountPath"`
					} `yaml:"volumeMounts"`
				}
			}
		}
	}
}

type probed struct {
	Get struct{ Path, Port string } `yaml:"httpGet"`
}

func manifests(t *testing.T) map[string]manifest {
	t.Helper()
	text := strings.NewReplacer("livenessProbe:", "live:", "readinessProbe:", "ready:").Replace(read(t, manifestFile))
	found := map[string]manifest{}
	for dec := yaml.NewDecoder(strings.NewReader(text)); ; { // a key that comes twice is an error
		var m manifest
		err := dec.Decode(&m)
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		found[m.Kind] = m
	}
}

func TestManifestFitsTheCommand(t *testing.T) {
	t.Setenv("PGPASSWORD", "p@ss/word")
	all := manifests(t)
	set, service := all["StatefulSet"], all["Service"]
	pod := set.Spec.Template.Spec
	if set.Spec.Replicas != 1 || len(pod.Containers) != 1 || set.Spec.ServiceName != service.Metadata.Name {
		t.Fatalf("want one replica of one container, named by the service: %+v", set)
	}
	c := pod.Containers[0]
	args := strings.Fields(strings.Replace(strings.Join(c.Args, " "), "/etc/walsink/walsink.yaml", config(t, all["ConfigMap"].Data["walsink.yaml"]), 1))
	flags := accepted(t, args)
	if drain := drainOf(t, flags); time.Duration(pod.Grace)*time.Second < drain+10*time.Second {
		t.Errorf("a grace period of %d s is not well above --drain-timeout %v", pod.Grace, drain)
	}
	port := fmt.Sprint(c.Ports[0].Port)
	if address := flags.Lookup("http").Value.String(); address != "0.0.0.0:"+port || fmt.Sprint(service.Spec.Ports[0].Port) != port {
		t.Errorf("--http %s, container port %s, service port %d", address, port, service.Spec.Ports[0].Port)
	}
	handler := monitor.New("job", "version").Handler(monitor.Options{})
	for path, p := range map[string]probed{"/healthz": c.Live, "/readyz": c.Ready} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, p.Get.Path, nil))
		if p.Get.Path != path || p.Get.Port != c.Ports[0].Name || w.Code == http.StatusNotFound {
			t.Errorf("probe %+v: the command answers %d", p.Get, w.Code)
		}
	}
	if state := flags.Lookup("state").Value.String(); filepath.Dir(state) != c.Mounts[0].Path || c.Mounts[0].Name != "state" {
		t.Errorf("--state %s is not right below the mount %+v", state, c.Mounts[0])
	}
}

func TestDockerfileFitsTheCommand(t *testing.T) {
	text := read(t, dockerFile)
	for _, want := range []string{
		"\nUSER 65532:65532\n", "\nVOLUME /var/lib/walsink\n", "\nENTRYPOINT [\"/usr/bin/walsink\"]\n",
		" -o /image/usr/bin/walsink ./cmd/walsink\n", "\nSTOPSIGNAL SIGTERM\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the Dockerfile lacks %q", want)
		}
	}
	_, line, ok := strings.Cut(text, "\n#       walsink run ")
	if !ok {
		t.Fatal("there is no example")
	}
	line, _, _ = strings.Cut(line, "\n")
	accepted(t, append([]string{"run"}, strings.Fields(line)...))
	mod := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, "../../go.mod"))
	if !strings.Contains(text, "ARG BUILD=golang:"+mod[1]+"-") {
		t.Errorf("the Dockerfile does not build with Go %s", mod[1])
	}
}
