// Command untrusted runs its arguments in a jail that sees this directory.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/bwrap"
)

func main() {
	spec := sandbox.Spec{Args: os.Args[1:], Workspace: os.Getenv("PWD")}
	out, exit, err := sandbox.Output(context.Background(), &bwrap.Backend{}, spec)
	fmt.Printf("%s%v, error %v\n", out, exit, err)
}
