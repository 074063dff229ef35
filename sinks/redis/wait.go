package redis

import (
	"context"
	"fmt"

	goredis "github.com/redis/go-redis/v9"
)

// wait makes the command that waits, on the connection that wrote, until the
// writes are as safe as the options want.
func (o Options) wait(ctx context.Context) goredis.Cmder {
	if o.WaitAOF {
		return goredis.NewCmd(ctx, "waitaof", 1, o.WaitReplicas, o.WaitTimeout.Milliseconds())
	}
	return goredis.NewCmd(ctx, "wait", o.WaitReplicas, o.WaitTimeout.Milliseconds())
}

// waited says whether enough confirmed in time.
func (o Options) waited(cmd goredis.Cmder) error {
	c, ok := cmd.(*goredis.Cmd)
	if !ok || c.Err() != nil {
		return fmt.Errorf("wait: %w", cmd.Err())
	}
	local, replicas := int64(1), int64(0)
	switch v := c.Val().(type) {
	case int64:
		replicas = v
	case []any:
		if len(v) == 2 {
			local, _ = v[0].(int64)
			replicas, _ = v[1].(int64)
		}
	}
	if local < 1 || replicas < int64(o.WaitReplicas) {
		return fmt.Errorf("wait: %d of %d replicas confirmed within %v", replicas, o.WaitReplicas, o.WaitTimeout)
	}
	return nil
}
