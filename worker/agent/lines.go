package agent

// The two streams that an agent writes to.
const (
	Stdout = "stdout"
	Stderr = "stderr"
)

// A Line is one line of output, without its newline.
type Line struct {
	Stream string
	N      int    // the line's number in its stream, from 1
	Bytes  []byte // valid until the function that gets the line returns
	Cut    int    // how many bytes are missing at the end
}
