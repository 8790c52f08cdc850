package netlab

import (
	"context"
	"fmt"
	"strconv"
)

const (
	// queueTime is how long a full link lets bytes wait.
	queueTime = "25ms"
	// leastBurst takes the largest packets that a virtual link hands over.
	leastBurst = 256 << 10
)

// join connects a host with the switch, both ways at the lab's rate: what it
// sends is shaped on its own end, what it gets on that of the switch.
func (l *Lab) join(ctx context.Context, h *Host, port string) error {
	err := l.hub.ip(ctx,
		fmt.Sprintf("link add %s type veth peer name eth0 netns %d", port, h.holder.PID()),
		fmt.Sprintf("link set %s master br0 up", port))
	if err != nil {
		return err
	}
	if err := h.ip(ctx, fmt.Sprintf("addr add %s/24 dev eth0", h.IP), "link set eth0 up"); err != nil {
		return err
	}
	if err := l.shape(ctx, h, "eth0"); err != nil {
		return err
	}
	return l.shape(ctx, l.hub, port)
}

func (l *Lab) shape(ctx context.Context, h *Host, device string) error {
	burst := max(leastBurst, l.cfg.Rate/8/100) // 10 ms
	_, err := h.Run(ctx, h.Command("tc", "qdisc", "add", "dev", device, "root", "tbf",
		"rate", strconv.FormatInt(l.cfg.Rate, 10)+"bit", "burst", strconv.FormatInt(burst, 10), "latency", queueTime))
	if err != nil {
		return fmt.Errorf("shape a link (the kernel needs sch_tbf): %w", err)
	}
	return nil
}
