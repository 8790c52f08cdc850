// Package swarm measures how fast a new file reaches many nodes at once: real
// daemons, one on each host of a network whose links are shaped, against one
// plain copy over the same links in the same run.
package swarm
