import assert from 'node:assert/strict'
import { orderOf } from '../../fixtures/shop/kinds.ts'
import { both, fails, flagged, one, play, says, type Scene } from '../support/shop-scenes.ts'
import type { Got } from '../support/shop.ts'

const order = orderOf(1)
const { state, ...stateless } = order
const renamed = { ...stateless, status: state }
const rename = { operators: [{ op: 'rename', path: '/state', to: 'status' }] }
const inText = (value: unknown) => (got: Got) => assert.deepEqual(JSON.parse(got.text), value)

const scenes: readonly Scene[] = [
  {
    title: 'result.drift: both forms of a reply lose a member to another name, and the schema shows it',
    tool: 'typed_renamed',
    type: 'result.drift',
    fault: rename,
    got: both(renamed),
    verdicts: one('schema_invalid'),
    fates: one('escaped'),
  },
  {
    title: 'result.drift: where the schema is enforced, the agent gets an error',
    tool: 'typed_enforced',
    type: 'result.drift',
    fault: rename,
    policies: { verdict: { output: 'enforce' }, retry: false },
    got: fails('incorrect_result'),
    verdicts: one(''),
    fates: one('surfaced'),
  },
  {
    title: 'result.drift: where wrong answers are retried, it never gets to know',
    tool: 'typed_retried',
    type: 'result.drift',
    fault: { ...rename, maxInjections: 1 },
    policies: { retry: { incorrect: true, base: 1, cap: 5 } },
    got: both(order),
    verdicts: { schema_invalid: 1, correct: 1 },
    fates: one('masked'),
  },
  {
    title: 'result.drift: where a prepared answer stands by, it gets that, flagged',
    tool: 'typed_degraded',
    type: 'result.drift',
    fault: rename,
    policies: {
      verdict: { output: 'enforce' },
      retry: false,
      degrade: { static: { structuredContent: { ...order, remark: 'prepared' } } },
    },
    got(got) {
      assert.deepEqual(got.structured, { ...order, remark: 'prepared' })
      flagged(got, 'fallback', /^a prepared answer/)
    },
    verdicts: one(''),
    fates: one('surfaced'),
  },
  {
    title: 'result.drift: structured content alone can change',
    tool: 'typed_structured',
    type: 'result.drift',
    fault: { ...rename, sync: 'structured_only' },
    got: (got) => assert.deepEqual([JSON.parse(got.text), got.structured], [order, renamed]),
    verdicts: one('schema_invalid'),
    fates: one('escaped'),
  },
  {
    title: 'result.drift: the text alone can change, which then is no copy any more',
    tool: 'typed_text',
    type: 'result.drift',
    fault: { operators: [{ op: 'unit', path: '/weight' }], sync: 'text_only' },
    got(got) {
      assert.deepEqual(got.structured, order)
      assert.notDeepEqual(JSON.parse(got.text), order)
      flagged(got, 'detected', /differ/)
    },
    verdicts: one('partial_silent'),
    fates: one('surfaced'),
  },
  {
    title: 'result.drift: what `auto` draws of the detectable operators breaks the schema, whatever it is',
    tool: 'typed_auto',
    type: 'result.drift',
    fault: { detectable: 'schema_detectable' },
    orders: Array.from({ length: 10 }, (_, n) => n),
    got: (got) => assert.deepEqual(JSON.parse(got.text), got.structured),
    verdicts: { schema_invalid: 10 },
    fates: { escaped: 10 },
    policies: { breaker: false },
  },
  {
    title: 'result.drift: what `auto` draws of the semantic ones never does',
    tool: 'typed_semantic',
    type: 'result.drift',
    fault: { detectable: 'semantic' },
    orders: Array.from({ length: 10 }, (_, n) => n),
    got(got) {
      assert.notDeepEqual(got.structured, orderOf(9))
      assert.deepEqual(JSON.parse(got.text), got.structured)
    },
    verdicts(found) {
      // A total that grew makes the list beside it look short, which is no matter of the schema.
      const { correct, partial_silent: short = 0 } = found as Record<string, number>
      assert.deepEqual(found, short === 0 ? { correct: 10 } : { correct, partial_silent: 10 - correct! })
    },
    fates: ({ escaped }) => assert.ok(Number(escaped) >= 5),
  },
  {
    title: 'result.drift: another shape than that of twenty replies before is seen without a schema, too',
    tool: 'json_shape',
    type: 'result.drift',
    fault: { ...rename, when: { afterCalls: 20 } },
    orders: Array.from({ length: 21 }, () => 1),
    got: inText(renamed),
    verdicts: { unchecked: 20, drift: 1 },
    fates: one('escaped'),
  },
  {
    title: 'result.drift: a tool whose wrong answers are too many is stopped',
    tool: 'typed_stopped',
    type: 'result.drift',
    fault: rename,
    policies: { breaker: { correctness: { ratio: 0.5, minimum: 5 }, open: '60s' } },
    orders: [1, 2, 3, 4, 5, 6, 7],
    got: fails('breaker_open'),
    verdicts: { schema_invalid: 5 },
    fates: { escaped: 5 },
  },
  {
    title: 'result.drift: there is no place for it in plain words',
    tool: 'words_drift',
    type: 'result.drift',
    got: says('the first half of the story'),
    verdicts: one('unchecked'),
    fates: {},
  },
  {
    title: 'result.drift: on the side of the agent no policy sees it',
    tool: 'typed_client',
    type: 'result.drift',
    fault: { ...rename, side: 'client' },
    got: both(renamed),
    verdicts: one('correct'),
    fates: one('escaped'),
  },
]

play(scenes)
