package schema_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"nf/schema"
	"nf/schema/jsontext"
)

func tree(t require.TestingT, text string) map[string]any {
	v, err := jsontext.DecodeObject([]byte(text), jsontext.Limits{})
	require.NoError(t, err)
	return v
}

func object(t require.TestingT, kind schema.Kind, spec string) schema.Object {
	o, err := schema.Decode(kind, schema.Metadata{Name: "x", Namespace: "ns"}, tree(t, spec))
	require.NoError(t, err)
	return o
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	d := object(t, schema.KindTaskDefinition, `{}`).(*schema.TaskDefinition)
	require.Equal(t, &schema.TaskDefinition{
		Metadata: schema.Metadata{Name: "x", Namespace: "ns"}, Retry: schema.DefaultRetry(), RetryBudget: 0.3,
		ResponseTimeout: 3_600_000, PollTimeout: 30_000, TimeoutPolicy: schema.TimeoutWorkflow, Delivery: schema.AtLeastOnce,
	}, d)
	g := object(t, schema.KindTarget, `{"grpc": {"address": "h:1", "service": "a.B", "descriptorSet": "x.binpb"}}`).(*schema.Target)
	require.True(t, g.GRPC.TLS)
	require.Equal(t, schema.Millis(30_000), g.DefaultTimeout)
	require.Nil(t, g.HTTP)
	h := object(t, schema.KindTarget, `{"http": {"baseUri": "https://h"}}`).(*schema.Target)
	require.Equal(t, &schema.HTTPTarget{BaseURI: "https://h", MaxRedirects: 3, MaxResponseBytes: 5 << 20}, h.HTTP)
	o, err := schema.Decode(schema.KindSemaphore, schema.Metadata{Name: "s"}, tree(t, `{"permits": 4}`))
	require.NoError(t, err)
	require.Equal(t, "Semaphore/default/s", o.Address().String())
}

// Everything that means the same has the same canonical form.
func TestCanonicalEqual(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind  schema.Kind
		specs []string
	}{
		"task definition": {schema.KindTaskDefinition, []string{`{}`, `{
			"retryCount": 3, "retryLogic": "EXPONENTIAL_BACKOFF", "retryDelaySeconds": 1.000, "backoffScaleFactor": 2.0, "maxRetryDelaySeconds": 3.6e3,
			"jitter": 2e-1, "retryBudget": 0.30, "nonRetryableErrors": [], "scheduleToStartTimeout": 0, "startToCloseTimeout": 0.0, "timeoutSeconds": 0,
			"totalTimeoutSeconds": 0, "heartbeatTimeout": 0, "responseTimeoutSeconds": 3600, "pollTimeoutSeconds": 30, "timeoutPolicy": "TIME_OUT_WF",
			"delivery": "atLeastOnce", "semaphores": []}`}},
		"semaphores are a set": {schema.KindTaskDefinition, []string{
			`{"semaphores": ["b", "other/c", "a"]}`, `{"semaphores": ["other/c", "ns/a", "b"]}`,
		}},
		"whole numbers": {schema.KindSemaphore, []string{`{"permits": 1000}`, `{"permits": 1e3}`, `{"permits": 1000.0}`}},
		"workflow": {schema.KindWorkflow, []string{
			`{"tasks": [{"taskReferenceName": "a", "name": "d"}]}`,
			`{"variables": {}, "timeoutSeconds": 0, "tasks": [{"optional": false, "name": "ns/d", "type": "SIMPLE", "taskReferenceName": "a", "startDelaySeconds": 0,
			"description": "", "inputParameters": {}}]}`,
		}},
		"http by uri": {schema.KindWorkflow, []string{
			`{"tasks": [{"taskReferenceName": "a", "type": "HTTP", "inputParameters": {"uri": "https://x"}}]}`,
			`{"tasks": [{"taskReferenceName": "a", "type": "HTTP", "inputParameters": {"uri": "https://x", "method": "GET", "query": {}, "headers": {}, "timeoutMs": 3e4}}]}`,
		}},
		"http by target": {schema.KindWorkflow, []string{
			`{"tasks": [{"taskReferenceName": "a", "type": "HTTP", "inputParameters": {"target": "erp"}}]}`,
			`{"tasks": [{"taskReferenceName": "a", "type": "HTTP", "inputParameters": {"target": "ns/erp", "path": ""}}]}`,
		}},
		"secret of a call": {schema.KindWorkflow, []string{
			`{"tasks": [{"taskReferenceName": "a", "type": "GRPC", "inputParameters": {"target": "t", "method": "M", "metadata": {"a": {"secretRef": {"name": "n", "key": "k"}}}}}]}`,
			`{"tasks": [{"taskReferenceName": "a", "type": "GRPC", "inputParameters": {"target": "t", "method": "M", "request": {}, "metadata": {"a": {"secretRef": {"name": "n", "key": "k", "prefix": ""}}}}}]}`,
		}},
		"switch": {schema.KindWorkflow, []string{
			`{"tasks": [{"taskReferenceName": "a", "type": "SWITCH", "expression": "k", "decisionCases": {"x": []}}]}`,
			`{"tasks": [{"taskReferenceName": "a", "type": "SWITCH", "expression": "k", "evaluatorType": "value-param", "decisionCases": {"x": []}, "defaultCase": []}]}`,
		}},
		"terminate": {schema.KindWorkflow, []string{
			`{"tasks": [{"taskReferenceName": "a", "type": "TERMINATE"}]}`,
			`{"tasks": [{"taskReferenceName": "a", "type": "TERMINATE", "inputParameters": {"terminationStatus": "COMPLETED"}}]}`,
		}},
		"target": {schema.KindTarget, []string{
			`{"http": {"baseUri": "https://x"}}`,
			`{"http": {"baseUri": "https://x", "headers": {}, "maxRedirects": 3, "maxResponseBytes": 5242880}, "defaultTimeoutMs": 30000}`,
		}},
		"free numbers": {schema.KindWorkflow, []string{
			`{"tasks": [{"taskReferenceName": "a", "name": "d", "inputParameters": {"n": 1000, "m": 1.5}}]}`,
			`{"tasks": [{"taskReferenceName": "a", "name": "d", "inputParameters": {"m": 1.50, "n": 1e3}}]}`,
		}},
		"prefix": {schema.KindTarget, []string{
			`{"http": {"baseUri": "https://x", "headers": {"a": {"secretRef": {"name": "n", "key": "k"}}}}}`,
			`{"http": {"baseUri": "https://x", "headers": {"a": {"secretRef": {"key": "k", "prefix": "", "name": "n"}}}}}`,
		}},
	} {
		first := object(t, c.kind, c.specs[0])
		for _, spec := range c.specs[1:] {
			o := object(t, c.kind, spec)
			require.Equal(t, string(schema.Canonical(first)), string(schema.Canonical(o)), name)
			require.Equal(t, schema.DigestOf(first), schema.DigestOf(o), name)
			require.Equal(t, first, o, name)
		}
		back, err := schema.DecodeCanonical(c.kind, first.Meta(), schema.Canonical(first))
		require.NoError(t, err, name)
		require.Equal(t, first, back, name)
	}
}

// What means something else has another digest.
func TestCanonicalDiffers(t *testing.T) {
	t.Parallel()
	seen := map[schema.Digest]string{}
	for _, c := range []struct {
		kind schema.Kind
		spec string
	}{
		{schema.KindTaskDefinition, `{}`},
		{schema.KindNamespace, `{}`},
		{schema.KindTaskDefinition, `{"retryCount": 0}`},
		{schema.KindTaskDefinition, `{"jitter": 0}`},
		{schema.KindTaskDefinition, `{"retryBudget": 0}`},
		{schema.KindTaskDefinition, `{"maxRetryDelaySeconds": 0}`},
		{schema.KindTaskDefinition, `{"inputSchema": {}}`},
		{schema.KindTaskDefinition, `{"inputSchema": true}`},
		{schema.KindTaskDefinition, `{"semaphores": ["a"]}`},
		{schema.KindTaskDefinition, `{"semaphores": ["other/a"]}`},
		{schema.KindWorkflow, `{"tasks": [{"taskReferenceName": "a", "name": "d"}]}`},
		{schema.KindWorkflow, `{"version": 1, "tasks": [{"taskReferenceName": "a", "name": "d"}]}`},
		{schema.KindWorkflow, `{"outputParameters": {}, "tasks": [{"taskReferenceName": "a", "name": "d"}]}`},
		{schema.KindWorkflow, `{"tasks": [{"taskReferenceName": "a", "name": "d", "retryCount": 0}]}`},
		{schema.KindWorkflow, `{"tasks": [{"taskReferenceName": "a", "name": "d", "inputParameters": {"n": null}}]}`},
		{schema.KindWorkflow, `{"tasks": [{"taskReferenceName": "a", "type": "HTTP", "inputParameters": {"target": "t", "timeoutMs": 30000}}]}`},
		{schema.KindWorkflow, `{"tasks": [{"taskReferenceName": "a", "type": "HTTP", "inputParameters": {"target": "t"}}]}`},
		{schema.KindWorkflow, `{"tasks": [{"taskReferenceName": "a", "type": "SWITCH", "expression": "k"}]}`},
		{schema.KindWorkflow, `{"tasks": [{"taskReferenceName": "a", "type": "SWITCH", "expression": "k", "decisionCases": {"x": []}}]}`},
		{schema.KindTarget, `{"usableFrom": "*", "http": {"baseUri": "https://x"}}`},
		{schema.KindTarget, `{"usableFrom": ["a"], "http": {"baseUri": "https://x"}}`},
	} {
		d := schema.DigestOf(object(t, c.kind, c.spec))
		require.Empty(t, seen[d], c.spec)
		seen[d] = c.spec
	}
}

// BG-55: a matched but empty case is kept apart from a case that is not there.
func TestBG_55_EmptyCaseSurvivesCanonicalForm(t *testing.T) {
	t.Parallel()
	o := object(t, schema.KindWorkflow, `{"tasks": [{"taskReferenceName": "a", "type": "SWITCH", "expression": "k", "decisionCases": {"a": []}}]}`)
	back, err := schema.DecodeCanonical(schema.KindWorkflow, o.Meta(), schema.Canonical(o))
	require.NoError(t, err)
	list, ok := back.(*schema.Workflow).Tasks[0].DecisionCases["a"]
	require.True(t, ok)
	require.Empty(t, list)
}

// Of a gRPC Target the compiled descriptors count, not the names of files.
func TestGRPCDescriptors(t *testing.T) {
	t.Parallel()
	a := object(t, schema.KindTarget, `{"grpc": {"address": "h:1", "service": "a.B", "descriptorSet": "x.binpb"}}`).(*schema.Target)
	b := object(t, schema.KindTarget, `{"grpc": {"address": "h:1", "service": "a.B", "protoFiles": ["a.proto"], "includeDirs": ["p"]}}`).(*schema.Target)
	a.GRPC.Descriptors, b.GRPC.Descriptors = []byte{1, 2, 3}, []byte{1, 2, 3}
	require.Equal(t, schema.DigestOf(a), schema.DigestOf(b))
	b.GRPC.Descriptors = []byte{1, 2, 4}
	require.NotEqual(t, schema.DigestOf(a), schema.DigestOf(b))
	back, err := schema.DecodeCanonical(schema.KindTarget, a.Meta(), schema.Canonical(a))
	require.NoError(t, err)
	require.Equal(t, a.GRPC.Descriptors, back.(*schema.Target).GRPC.Descriptors)
	require.NotContains(t, string(schema.Canonical(a)), "x.binpb")
	require.Contains(t, schema.Tree(a)["grpc"].(map[string]any)["descriptors"], "sha256:")
}

func TestDecodeErrors(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]string{
		`{"retryCuont": 1}`:                   "retryCuont: unknown key",
		`{"retryCount": 1.5}`:                 "retryCount: must be a whole number",
		`{"retryDelaySeconds": 0.0001}`:       "at most three decimals",
		`{"retryDelaySeconds": "1"}`:          "retryDelaySeconds:",
		`{"semaphores": [1]}`:                 "item 0 must be text",
		`{"retryLogic": 1}`:                   "retryLogic: must be text",
		`{"retryCount": 9999999999999999999}`: "whole number",
	} {
		_, err := schema.Decode(schema.KindTaskDefinition, schema.Metadata{Name: "x"}, tree(t, spec))
		require.ErrorContains(t, err, want)
	}
	_, err := schema.Decode(schema.KindWorkflow, schema.Metadata{Name: "x"}, tree(t, `{"tasks": [{"taskReferenceName": "a", "uri": "x"}]}`))
	require.ErrorContains(t, err, "tasks[0].uri: unknown key")
	_, err = schema.Decode("Queue", schema.Metadata{Name: "x"}, nil)
	require.ErrorIs(t, err, schema.ErrUnknownKind)
	_, err = schema.DecodeCanonical(schema.KindSemaphore, schema.Metadata{Name: "x"}, []byte(`{"permits":`))
	require.ErrorContains(t, err, "Semaphore/x")
}

func TestSecondsExact(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]schema.Millis{"0": 0, "1": 1000, "1.5": 1500, "0.001": 1, "1.1": 1100, "31622400": schema.MaxDuration, "1e3": 1_000_000, "4.35": 4350} {
		o := object(t, schema.KindWorkflow, `{"timeoutSeconds": `+text+`, "tasks": [{"taskReferenceName": "a", "name": "d"}]}`).(*schema.Workflow)
		require.Equal(t, want, o.Timeout, text)
	}
	require.Equal(t, "1.5", string(schema.Seconds(1500)))
	require.Equal(t, "31622400", string(schema.Seconds(schema.MaxDuration)))
	require.Equal(t, "0.001", string(schema.Seconds(1)))
	require.Equal(t, "0", string(schema.Seconds(0)))
}

func TestSet(t *testing.T) {
	t.Parallel()
	named := func(name string, labels map[string]string) schema.Object {
		o, err := schema.Decode(schema.KindSemaphore, schema.Metadata{Name: name, Namespace: "ns", Labels: labels}, tree(t, `{"permits": 1}`))
		require.NoError(t, err)
		return o
	}
	a, b := named("a", nil), named("b", nil)
	s, err := schema.NewSet(b, a)
	require.NoError(t, err)
	other, err := schema.NewSet(a, b)
	require.NoError(t, err)
	require.Equal(t, s.Digest(), other.Digest())
	require.Equal(t, []schema.Object{a, b}, s.All())
	require.Equal(t, 2, s.Len())
	got, ok := s.Get(b.Address())
	require.True(t, ok)
	require.Equal(t, b, got)
	_, ok = s.Get(schema.Address{Kind: schema.KindSemaphore, Namespace: "ns", Name: "c"})
	require.False(t, ok)
	_, err = schema.NewSet(a, b, named("a", nil))
	require.ErrorIs(t, err, schema.ErrDuplicate)
	require.ErrorContains(t, err, "Semaphore/ns/a")
	labelled, err := schema.NewSet(named("a", map[string]string{"k": "v"}), b)
	require.NoError(t, err)
	require.NotEqual(t, s.Digest(), labelled.Digest())
	var empty schema.Set
	none, err := schema.NewSet()
	require.NoError(t, err)
	require.Equal(t, none.Digest(), empty.Digest())
	require.Empty(t, empty.All())
}

func TestTree(t *testing.T) {
	t.Parallel()
	e := schema.Tree(object(t, schema.KindTaskDefinition, `{"retryLogic": "FIXED"}`))
	require.NotContains(t, e, "backoffScaleFactor")
	require.NotContains(t, e, "concurrentExecLimit")
	require.Contains(t, e, "retryBudget")
	w := schema.Tree(object(t, schema.KindWorkflow, `{"tasks": [{"taskReferenceName": "a", "type": "HTTP", "inputParameters": {"uri": "https://x"}}]}`))
	text, err := jsontext.Encode(w)
	require.NoError(t, err)
	require.JSONEq(t, `{"tasks": [{"taskReferenceName": "a", "type": "HTTP", "optional": false, "startDelaySeconds": 0, "description": "",
		"inputParameters": {"uri": "https://x", "method": "GET", "query": {}, "headers": {}, "timeoutMs": 30000}}], "timeoutSeconds": 0, "variables": {}}`, string(text))
}

func TestMetadata(t *testing.T) {
	t.Parallel()
	m, err := schema.DecodeMetadata(schema.KindWorkflow, tree(t, `{"name": "a", "labels": {"k": "v"}, "description": "d"}`))
	require.NoError(t, err)
	require.Equal(t, schema.Metadata{Name: "a", Namespace: "default", Labels: map[string]string{"k": "v"}, Description: "d"}, m)
	m, err = schema.DecodeMetadata(schema.KindNamespace, tree(t, `{"name": "a"}`))
	require.NoError(t, err)
	require.Empty(t, m.Namespace)
	_, err = schema.DecodeMetadata(schema.KindNamespace, tree(t, `{"name": "a", "namespace": "b"}`))
	require.ErrorContains(t, err, "metadata.namespace: unknown key")
}

func TestDigestText(t *testing.T) {
	t.Parallel()
	d := schema.DigestOf(object(t, schema.KindNamespace, `{}`))
	back, err := schema.ParseDigest(d.String())
	require.NoError(t, err)
	require.Equal(t, d, back)
	_, err = schema.ParseDigest("sha256:zz")
	require.Error(t, err)
	_, err = schema.ParseDigest("sha256:" + strings.Repeat("z", 64))
	require.Error(t, err)
}
