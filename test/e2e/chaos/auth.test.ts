import assert from 'node:assert/strict'
import { fails, one, play, says, type Scene } from '../support/shop-scenes.ts'
import type { Got } from '../support/shop.ts'
import type { Lane } from '../support/stage.ts'

const on = ({ transport }: Lane) => transport === 'http'
const story = says('the first half of the story')
/** What the SDKs make of a status; they do not all tell which it was. */
const gets = (words: RegExp) => (got: Got) => {
  assert.equal(got.text, '')
  assert.match(String(got.message), words)
  assert.doesNotMatch(String(got.message), /breakwater/)
}
const orders = (length: number) => Array.from({ length }, () => 1)

const scenes: readonly Scene[] = [
  {
    title: 'auth.expired: a token that has expired is an error at once, which nobody tries again',
    tool: 'words_expired',
    type: 'auth.expired',
    got(got: Got) {
      fails('upstream_unauthorized')(got)
      assert.equal(got.code, 1401)
    },
    verdicts: one(''),
    fates: one('surfaced'),
  },
  {
    title: 'auth.expired: whoever is refused may have been refused alone, so no breaker opens',
    tool: 'words_breaker',
    type: 'auth.expired',
    orders: orders(6),
    got: fails('upstream_unauthorized'),
    verdicts: { '': 6 },
    fates: { surfaced: 6 },
  },
  {
    title: 'auth.expired: until then it holds',
    tool: 'words_valid',
    type: 'auth.expired',
    fault: { after: '1h' },
    got: story,
    verdicts: one('unchecked'),
    fates: {},
  },
  {
    title: 'auth.expired: on the side of the agent it is the status 401',
    tool: 'words_401',
    type: 'auth.expired',
    fault: { side: 'client' },
    got: gets(/access token expired/i),
    verdicts: {},
    fates: one('surfaced'),
  },
  {
    title: 'auth.scope: a token that lacks a scope is an error as well',
    tool: 'words_scope',
    type: 'auth.scope',
    got: fails('upstream_forbidden'),
    verdicts: one(''),
    fates: one('surfaced'),
  },
  {
    title: 'auth.scope: on the side of the agent it is the status 403',
    tool: 'words_403',
    type: 'auth.scope',
    fault: { side: 'client' },
    got: gets(/scope/i),
    verdicts: {},
    fates: one('surfaced'),
  },
  {
    title: 'limit.429: a write is not sent again, as only the server knows whether it ran',
    tool: 'words_limited',
    type: 'limit.429',
    fault: { form: 'absent', maxInjections: 1, allowWrites: true },
    policies: { effect: 'write' },
    got(got: Got) {
      fails('upstream_rate_limited')(got)
      assert.equal(got.data?.sent, true)
    },
    verdicts: one(''),
    fates: one('surfaced'),
  },
  {
    title: 'limit.429: an absurd time to come again is not believed',
    tool: 'words_absurd',
    type: 'limit.429',
    fault: { form: 'absurd', maxInjections: 1 },
    got: story,
    verdicts: { '': 1, unchecked: 1 },
    fates: one('masked'),
  },
  {
    title: 'limit.429: a time within the deadline is waited for',
    tool: 'words_seconds',
    type: 'limit.429',
    fault: { retryAfter: '1s', maxInjections: 1 },
    got: story,
    verdicts: { '': 1, unchecked: 1 },
    fates: one('masked'),
    leastMs: 900,
  },
  {
    title: 'limit.429: a time past the deadline is told to the agent at once',
    tool: 'words_date',
    type: 'limit.429',
    fault: { retryAfter: '60s', form: 'date' },
    policies: { deadline: { total: '20s' } },
    got(got: Got) {
      fails('upstream_rate_limited')(got)
      assert.ok(Number(got.data?.retryAfterMs) > 50_000, JSON.stringify(got.data))
    },
    verdicts: one(''),
    fates: one('surfaced'),
  },
  {
    title: 'limit.429: so many calls a second pass',
    tool: 'words_some',
    type: 'limit.429',
    fault: { perSecond: 1_000 },
    orders: orders(5),
    got: story,
    verdicts: { unchecked: 5 },
    fates: {},
  },
  {
    title: 'limit.429: on the side of the agent it is the status itself',
    tool: 'words_429',
    type: 'limit.429',
    fault: { side: 'client' },
    got: gets(/too many requests/i),
    verdicts: {},
    fates: one('surfaced'),
  },
].map((scene) => ({ ...scene, on }))

play(scenes)
