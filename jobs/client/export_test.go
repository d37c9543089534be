package client

import "time"

// SubmitAgainAfter sets how long a client waits for an answer before it sends a job
// again.
func SubmitAgainAfter(c *Client, d time.Duration) { c.unanswered = d }
