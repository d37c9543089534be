package policy_test

import (
	"context"
	"fmt"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/policy"
)

func ExamplePolicy_Permits() {
	p, err := policy.Parse("/etc/jails.yaml", []byte(`
network: allowlist
hosts: [registry.example]
limits: {memory: 2GiB}
`))
	if err != nil {
		panic(err)
	}
	fmt.Println(p.Permits(policy.Request{
		Network: "full", Hosts: []string{"elsewhere.example"}, Limits: sandbox.Limits{Memory: 1 << 30},
	}))
	// Output: policy /etc/jails.yaml: network: full is not permitted; permitted is allowlist; hosts: elsewhere.example is not permitted; permitted is registry.example
}

func ExampleAsker() {
	asker := policy.NewAsker(func(_ context.Context, q policy.Question) bool {
		fmt.Println("asked about", q.Kind, q.What)
		return q.What == "registry.example:443"
	}, 0)
	for _, host := range []string{"registry.example:443", "elsewhere.example:443", "registry.example:443"} {
		fmt.Println(asker.Allows(context.Background(), policy.Question{Kind: policy.KindHost, What: host}))
	}
	// Output:
	// asked about host registry.example:443
	// true
	// asked about host elsewhere.example:443
	// false
	// true
}
