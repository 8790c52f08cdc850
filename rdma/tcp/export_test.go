package tcp

// Leftovers returns how many connections and gates a client keeps.
func Leftovers(c *Client) int {
	c.gates.mu.Lock()
	defer c.gates.mu.Unlock()
	return c.conns.len() + len(c.gates.byAddr)
}
