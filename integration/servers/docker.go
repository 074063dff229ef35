package servers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	tclog "github.com/testcontainers/testcontainers-go/log"
	"github.com/testcontainers/testcontainers-go/modules/postgres"
	"github.com/testcontainers/testcontainers-go/modules/redis"
)

// ownerLabel holds the owner of a container, so that a later process can remove
// what a killed one has left.
const ownerLabel = "walsink.test.owner"

var docker struct {
	once sync.Once
	cli  *testcontainers.DockerClient
	err  error
}

// dockerClient connects to the daemon on the first call, and removes the
// containers of owners that are gone.
func dockerClient() (*testcontainers.DockerClient, error) {
	docker.once.Do(func() {
		if host := os.Getenv("DOCKER_HOST"); host == "" || strings.HasPrefix(host, "unix:") {
			// Inside a container testcontainers would guess the address of a gateway.
			setDefault("TESTCONTAINERS_HOST_OVERRIDE", "127.0.0.1")
		}
		setDefault("TESTCONTAINERS_RYUK_DISABLED", "true") // its image may not be there; we sweep
		tclog.SetDefault(tclog.NewNoopLogger())
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		docker.cli, docker.err = testcontainers.NewDockerClientWithOpts(ctx)
		if docker.err == nil {
			_, docker.err = docker.cli.Ping(ctx, client.PingOptions{})
		}
		if docker.err == nil {
			docker.err = sweepContainers(ctx, docker.cli)
		}
	})
	return docker.cli, docker.err
}

func setDefault(name, value string) {
	if os.Getenv(name) == "" {
		_ = os.Setenv(name, value)
	}
}

func closeDocker() error {
	if docker.cli == nil {
		return nil
	}
	return docker.cli.Close()
}

func sweepContainers(ctx context.Context, cli *testcontainers.DockerClient) error {
	list, err := cli.ContainerList(ctx, client.ContainerListOptions{
		All: true, Filters: make(client.Filters).Add("label", ownerLabel),
	})
	if err != nil {
		return err
	}
	for _, c := range list.Items {
		if !ownerGone(c.Labels[ownerLabel]) {
			continue
		}
		if err := removeContainer(ctx, cli, c.ID); err != nil {
			return err
		}
	}
	return nil
}

func removeContainer(ctx context.Context, cli *testcontainers.DockerClient, id string) error {
	_, err := cli.ContainerRemove(ctx, id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	if errdefs.IsNotFound(err) || errdefs.IsConflict(err) { // gone, or another process removes it
		return nil
	}
	return err
}

// A box is a container.
type box struct {
	cli  *testcontainers.DockerClient
	id   string
	port int
}

// startContainer runs a container with a fixed port of 127.0.0.1, so that its
// address outlives restarts. Another program may take the port before: then again.
func startContainer(k kind, args []string, _ bool) (machine, error) {
	cli, err := dockerClient()
	if err != nil {
		return nil, err
	}
	for range 5 {
		var b *box
		if b, err = runContainer(cli, k, args); err == nil {
			return b, nil
		}
		if !strings.Contains(err.Error(), "port is already allocated") && !strings.Contains(err.Error(), "address already in use") {
			break
		}
	}
	return nil, err
}

func runContainer(cli *testcontainers.DockerClient, k kind, args []string) (*box, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	inside, run := "5432/tcp", runPostgres
	if k.name == "redis" {
		inside, run = "6379/tcp", runRedis
	}
	c, err := run(ctx, args,
		testcontainers.WithLabels(map[string]string{ownerLabel: self()}),
		testcontainers.WithConfigModifier(func(c *container.Config) {
			if k.name == "postgres" {
				c.StopSignal = "SIGINT" // do not wait for clients to leave
			}
		}),
		testcontainers.WithHostConfigModifier(func(h *container.HostConfig) {
			h.PortBindings = network.PortMap{network.MustParsePort(inside): {{
				HostIP: netip.MustParseAddr("127.0.0.1"), HostPort: strconv.Itoa(port),
			}}}
		}))
	if err != nil {
		if c != nil && c.GetContainerID() != "" {
			err = errors.Join(err, removeContainer(ctx, cli, c.GetContainerID()))
		}
		return nil, err
	}
	return &box{cli, c.GetContainerID(), port}, nil
}

func runPostgres(ctx context.Context, args []string, opts ...testcontainers.ContainerCustomizer) (testcontainers.Container, error) {
	c, err := postgres.Run(ctx, image("WALSINK_POSTGRES_IMAGE", "postgres:15"), append(opts,
		postgres.WithPassword(password),
		testcontainers.WithCmd(append([]string{"postgres"}, postgresKind.command(args)...)...))...)
	if c == nil {
		return nil, err
	}
	return c.Container, err
}

func runRedis(ctx context.Context, args []string, opts ...testcontainers.ContainerCustomizer) (testcontainers.Container, error) {
	c, err := redis.Run(ctx, image("WALSINK_REDIS_IMAGE", "redis:7"), append(opts,
		testcontainers.WithCmd(append([]string{"redis-server"}, redisKind.command(args)...)...))...)
	if c == nil {
		return nil, err
	}
	return c.Container, err
}

func image(variable, name string) string {
	if s := os.Getenv(variable); s != "" {
		return s
	}
	return name
}

func (b *box) addr() string { return localAddr(b.port) }

// exited returns the end of the log of a container that has ended.
func (b *box) exited() error {
	return b.do(func(ctx context.Context) error {
		r, err := b.cli.ContainerInspect(ctx, b.id, client.ContainerInspectOptions{})
		if err != nil || r.Container.State.Running {
			return err
		}
		logs, err := b.cli.ContainerLogs(ctx, b.id, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true, Tail: "10"})
		if err != nil {
			return err
		}
		defer logs.Close()
		text, _ := io.ReadAll(logs)
		return fmt.Errorf("the container has ended: %q", text)
	})
}

// do makes one call to the daemon, with a bound on its time.
func (b *box) do(call func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	return call(ctx)
}

func (b *box) start() error {
	return b.do(func(ctx context.Context) error {
		_, err := b.cli.ContainerStart(ctx, b.id, client.ContainerStartOptions{})
		return err
	})
}

func (b *box) stop() error {
	seconds := 30
	return b.do(func(ctx context.Context) error {
		_, err := b.cli.ContainerStop(ctx, b.id, client.ContainerStopOptions{Timeout: &seconds})
		return err
	})
}

func (b *box) kill() error {
	return b.do(func(ctx context.Context) error {
		_, err := b.cli.ContainerKill(ctx, b.id, client.ContainerKillOptions{Signal: "KILL"})
		if errdefs.IsConflict(err) { // not running
			return nil
		}
		if err != nil {
			return err
		}
		wait := b.cli.ContainerWait(ctx, b.id, client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
		select {
		case <-wait.Result:
			return nil
		case err := <-wait.Error:
			return err
		}
	})
}

func (b *box) pause() error {
	return b.do(func(ctx context.Context) error {
		_, err := b.cli.ContainerPause(ctx, b.id, client.ContainerPauseOptions{})
		return err
	})
}

func (b *box) unpause() error {
	return b.do(func(ctx context.Context) error {
		_, err := b.cli.ContainerUnpause(ctx, b.id, client.ContainerUnpauseOptions{})
		return err
	})
}

func (b *box) disconnect() error {
	return b.do(func(ctx context.Context) error {
		_, err := b.cli.NetworkDisconnect(ctx, "bridge", client.NetworkDisconnectOptions{Container: b.id})
		return err
	})
}

func (b *box) connect() error {
	return b.do(func(ctx context.Context) error {
		_, err := b.cli.NetworkConnect(ctx, "bridge", client.NetworkConnectOptions{Container: b.id})
		return err
	})
}

func (b *box) remove() error {
	return b.do(func(ctx context.Context) error {
		if err := removeContainer(ctx, b.cli, b.id); err != nil {
			return fmt.Errorf("remove container %.12s: %w", b.id, err)
		}
		return nil
	})
}
