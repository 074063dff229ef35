package faults_test

import (
	"bufio"
	"context"
	"fmt"
	"net"

	"github.com/walsink/walsink/faults"
	"github.com/walsink/walsink/sinks"
)

// The server does what it is told, and the client never hears of it.
func ExampleCutter() {
	server, _ := net.Listen("tcp", "127.0.0.1:0")
	defer server.Close()
	heard := make(chan string)
	go func() {
		conn, _ := server.Accept()
		defer conn.Close()
		line, _ := bufio.NewReader(conn).ReadString('\n')
		heard <- line
		_, _ = fmt.Fprintln(conn, "done")
	}()

	cutter, err := faults.NewCutter(server.Addr().String())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cutter.Close()
	cutter.Arm(faults.Cut{Dir: faults.ToServer, Match: "COMMIT\n", Do: faults.LoseAnswer})

	client, _ := net.Dial("tcp", cutter.Addr())
	defer client.Close()
	_, _ = fmt.Fprintln(client, "COMMIT")
	fmt.Printf("server: %q\n", <-heard)
	answer, err := bufio.NewReader(client).ReadString('\n')
	fmt.Printf("client: %q, error: %v\n", answer, err != nil)
	// Output:
	// server: "COMMIT\n"
	// client: "", error: true
}

// The second flush happens, and its answer is lost.
func ExamplePlan() {
	plan := faults.NewPlan(faults.Fault{
		Op: faults.Flush, Nth: 2,
		After: &sinks.Error{Kind: sinks.Ambiguous, Op: "flush"},
	})
	sink := plan.Wrap(&counter{}) // the sink under test
	lane, _, _ := sink.Acquire(context.Background(), sinks.LaneID{Sink: "orders", Lane: "0"})
	for range 3 {
		_, err := lane.Flush(context.Background(), &sinks.Step{})
		fmt.Println(err)
	}
	// Output:
	// <nil>
	// flush: ambiguous
	// <nil>
}
