import { after, before, test } from 'node:test'
import { cleanUp } from '../support/gateway.ts'
import { assertSound, playEverywhere, type Scene } from '../support/scene.ts'
import { closeClients } from '../support/sdk-client.ts'
import { Stage, type Lane } from '../support/stage.ts'

const once = { maxInjections: 1 }
/** Longer than an attempt takes that nothing happens to, on a busy machine too; in milliseconds. */
const BRIEF_MS = 1_200
const brief = { attemptTimeout: { timeout: BRIEF_MS } }
const overHttp = ({ transport }: Lane) => transport === 'http'
const overStdio = ({ transport }: Lane) => transport === 'stdio'
const ofModernEra = ({ era }: Lane) => era === 'modern'
const tried = { transport_error: 3 }
const saved = { transport_error: 1, returned: 1 }

/** Below all policies: what the gateway makes of replies that are none. */
const scenes: readonly Scene[] = [
  {
    title: 'an error is tried again, and then the agent gets it as it is',
    tool: 'error',
    type: 'rpc.error',
    fault: { code: -32000, message: 'injected', data: { n: 1 } },
    sees: { code: -32000, message: /injected$/ },
    runs: 0,
    attempts: { rpc_error: 3 },
    fates: { surfaced: 3 },
  },
  {
    title: 'one error is masked by the retry',
    tool: 'error_once',
    type: 'rpc.error',
    fault: once,
    runs: 1,
    attempts: { rpc_error: 1, returned: 1 },
    fates: { masked: 1 },
  },
  {
    title: "an error that is the caller's is not tried again",
    tool: 'error_callers',
    type: 'rpc.error',
    fault: { ...once, code: -32602 },
    sees: { code: -32602 },
    runs: 0,
    attempts: { caller_error: 1 },
    fates: { surfaced: 1 },
  },
  {
    title: 'half a reply becomes a clean error',
    tool: 'truncate',
    type: 'rpc.malformed',
    on: overHttp,
    sees: { reason: 'bad_reply', code: 1502, message: /it may have run/ },
    runs: 3,
    attempts: tried,
    fates: { surfaced: 3 },
  },
  {
    title: 'a reply that is no JSON is masked by the retry',
    tool: 'bad_json_once',
    type: 'rpc.malformed',
    fault: { ...once, kind: 'bad_json' },
    on: overHttp,
    runs: 2,
    attempts: saved,
    fates: { masked: 1 },
  },
  {
    title: 'a reply that is no JSON is no reason to run a tool that writes again',
    tool: 'write_bad_json',
    type: 'rpc.malformed',
    fault: { ...once, kind: 'bad_json', allowWrites: true },
    on: overHttp,
    sees: { reason: 'bad_reply', message: /it may have run/ },
    runs: 1,
    attempts: { transport_error: 1 },
    fates: { surfaced: 1 },
  },
  {
    title: 'a web page in place of a reply becomes a clean error, without the page',
    tool: 'page',
    type: 'rpc.malformed',
    fault: { kind: 'wrong_content_type' },
    on: overHttp,
    sees: { reason: 'bad_reply', message: /^[^<]*text\/html[^<]*$/ },
    runs: 3,
    attempts: tried,
    fates: { surfaced: 3 },
  },
  {
    title: "another request's reply is never taken for this one's",
    tool: 'wrong_id',
    type: 'rpc.wrong_id',
    on: overHttp,
    sees: { reason: 'bad_reply', message: /answered another request/ },
    runs: 3,
    attempts: tried,
    fates: { surfaced: 3 },
  },
  {
    title: "one reply of another request's is masked by the retry",
    tool: 'wrong_id_once',
    type: 'rpc.wrong_id',
    fault: once,
    on: overHttp,
    runs: 2,
    attempts: saved,
    fates: { masked: 1 },
  },
  {
    title: "over a pipe half a reply is nobody's: each attempt waits until its time is over",
    tool: 'truncate_line',
    type: 'rpc.malformed',
    policies: brief,
    on: overStdio,
    sees: { reason: 'attempt_timeout', message: /it may have run/ },
    runs: 3,
    attempts: { timeout: 3 },
    fates: { surfaced: 3 },
    takesMs: 3 * BRIEF_MS,
  },
  {
    title: 'over a pipe a reply that is no JSON is masked by the timeout and the retry',
    tool: 'bad_json_line_once',
    type: 'rpc.malformed',
    fault: { ...once, kind: 'bad_json' },
    policies: brief,
    on: overStdio,
    runs: 2,
    attempts: { timeout: 1, returned: 1 },
    fates: { masked: 1 },
    takesMs: BRIEF_MS,
  },
  {
    title: 'over a pipe a reply that is no JSON is no reason to run a tool that writes again',
    tool: 'write_bad_json_line',
    type: 'rpc.malformed',
    fault: { ...once, kind: 'bad_json', allowWrites: true },
    policies: brief,
    on: overStdio,
    sees: { reason: 'attempt_timeout', message: /it may have run/ },
    runs: 1,
    attempts: { timeout: 1 },
    fates: { surfaced: 1 },
    takesMs: BRIEF_MS,
  },
  {
    title: "over a pipe another request's reply is never taken for this one's, which waits in vain",
    tool: 'wrong_id_line',
    type: 'rpc.wrong_id',
    policies: brief,
    on: overStdio,
    sees: { reason: 'attempt_timeout', message: /it may have run/ },
    runs: 3,
    attempts: { timeout: 3 },
    fates: { surfaced: 3 },
    takesMs: 3 * BRIEF_MS,
  },
  {
    title: 'a second reply is thrown away',
    tool: 'duplicate',
    type: 'rpc.duplicate',
    runs: 1,
    attempts: { returned: 1 },
    fates: { masked: 1 },
  },
  {
    title: 'a reply that is late is cut short by the timeout and the retry, and thrown away when it comes',
    tool: 'late_once',
    type: 'rpc.late',
    fault: { ...once, delay: 2 * BRIEF_MS },
    policies: brief,
    runs: 2,
    attempts: { timeout: 1, returned: 1 },
    fates: { delayed: 1 },
    takesMs: BRIEF_MS,
  },
  {
    title: 'a reply that is a bit late is waited for',
    tool: 'late',
    type: 'rpc.late',
    fault: { delay: 300 },
    runs: 1,
    attempts: { returned: 1 },
    fates: { delayed: 1 },
    takesMs: 300,
  },
  {
    title: 'a server of the legacy era that refuses the version once is masked by the retry',
    tool: 'version_once',
    type: 'rpc.version_mismatch',
    fault: once,
    on: ({ name }) => name === 'http-legacy',
    runs: 1,
    attempts: { caller_error: 1, returned: 1 },
    fates: { masked: 1 },
  },
  {
    title: 'a refusal of the version is the agent to read, in the modern era',
    tool: 'version',
    type: 'rpc.version_mismatch',
    fault: once,
    on: ofModernEra,
    sees: { code: -32022 },
    runs: 0,
    attempts: { caller_error: 1 },
    fates: { surfaced: 1 },
  },
  {
    title: 'a refusal of headers reaches the client of the SDK, which fetches the list anew and calls again',
    tool: 'header_once',
    type: 'rpc.header_mismatch',
    fault: once,
    on: (lane) => overHttp(lane) && ofModernEra(lane),
    runs: 1,
    attempts: { caller_error: 1, returned: 1 },
    fates: { surfaced: 1 },
  },
]

let stage: Stage

before(async () => {
  stage = await Stage.start(scenes)
})
after(async () => {
  await closeClients()
  await cleanUp()
})

for (const scene of scenes) {
  test(`${scene.type}: ${scene.title}`, () => playEverywhere(stage, scene))
}

test('the engine had no part in it', () => assertSound(stage))
