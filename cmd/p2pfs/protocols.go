package main

// protocols are the versions of what this program speaks and writes.
func protocols() map[string]int {
	return map[string]int{"control": 1}
}
