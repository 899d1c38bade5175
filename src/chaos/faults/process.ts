import { z } from 'zod'
import { Cancellation } from '../../mesh/cancel.ts'
import type { Millis } from '../../mesh/clock.ts'
import type { CrashLoop } from '../../mesh/wire-shape.ts'
import { gatewayError } from '../../mesh/errors.ts'
import { duration, waitDuration } from '../../units/duration.ts'
import type { FaultType, Injection, Only, Transport } from '../fault.ts'
import { firstOf, onAnswer, requests } from './shared.ts'

/** Only processes started by the gateway can get signals. `instead`: a similar fault for other servers. */
const ownProcess = (instead: string): Only<Transport> => ({
  only: ['stdio'],
  otherwise: `there is no process behind {}; see ${instead}`,
})

const ownOutput: Only<Transport> = { only: ['stdio'], otherwise: '{} has no standard output' }

const NO_PROCESS = 'the server has no process now'

/** Signals that end a process. */
const ending = z.enum(['TERM', 'KILL', 'INT', 'HUP', 'QUIT', 'ABRT', 'SEGV'])

const killSchema = z.strictObject({
  signal: ending.default('TERM').describe('The signal that ends the process.'),
  restartAfter: duration({ min: 1 })
    .optional()
    .describe(
      'How long after the kill the calls hit by the fault find no process. Default: until the gateway has started the process again.',
    ),
})

/**
 * Ends the server's process. The call is sent, and fails like any call to a server that has just died. The gateway
 * restarts the process. `restartAfter` refuses only calls that the fault hits; with a rate below 1, other calls may
 * reach a new process earlier.
 */
const kill = {
  schema: killSchema,
  family: 'process',
  about: "Ends the server's process.",
  use: 'To test the restart of a local server, and the calls under way when it died.',
  seen: 'Calls under way fail.',
  containedBy: {
    policies: ['retry'],
    how: 'The gateway starts the program again, and retry repeats calls that only read.',
  },
  methods: requests,
  sides: ['upstream'],
  transports: ownProcess('conn.refused'),
  example: { name: 'kill', rate: 0.01, ttl: '10m', match: { server: 'files' }, signal: 'TERM' },
  layer:
    ({ signal, restartAfter }, injection) =>
    (next) =>
    (call) => {
      const now = injection.clock.now()
      const outage = injection.memory(`outage of ${call.server}`, () => ({ until: now }))
      const retryAfterMs = Math.ceil(outage.until - now)
      if (retryAfterMs > 0) {
        injection.note({ effect: 'unavailable', downForMs: retryAfterMs })
        const message = `the server's process was ended by SIG${signal}; it is not started again before ${waitDuration(retryAfterMs)} have passed`
        return Promise.resolve({
          kind: 'failed',
          error: gatewayError('upstream_unavailable', message, { retryAfterMs }),
        })
      }
      if (!injection.faultEnvironment.signal(call.server, `SIG${signal}`)) {
        injection.notApplicable(NO_PROCESS)
        return next(call)
      }
      if (restartAfter !== undefined) outage.until = now + restartAfter
      injection.note({ effect: 'killed', signal: `SIG${signal}` })
      return next(call)
    },
} satisfies FaultType<z.output<typeof killSchema>>

const pauseSchema = z.strictObject({
  for: duration({ min: 1, max: 600_000 }).default(5_000).describe('How long the process is stopped.'),
})

/** The end of the current pause of a process; undefined while the process runs. */
interface Pause {
  over: Promise<void> | undefined
}

/**
 * Stops the server's process and the rest of its group, like `kill -STOP`: the process reads nothing, answers nothing
 * and loses nothing. A call hit during the pause finds the process stopped.
 */
const pause = {
  schema: pauseSchema,
  family: 'process',
  about: "The server's process stops for a while, and then continues.",
  use: 'To test a server that hangs as a whole: a long garbage collection, swapping, a frozen container.',
  seen: 'Silence, then the answer, or a timeout.',
  containedBy: {
    policies: ['bulkhead', 'attemptTimeout', 'deadline'],
    how: 'The bulkhead bounds the calls sent meanwhile, and a timeout ends slow calls.',
  },
  methods: requests,
  sides: ['upstream'],
  transports: ownProcess('conn.half_open'),
  options: { delay: { sets: 'for' } },
  example: { name: 'pause', rate: 0.01, ttl: '10m', match: { server: 'files' }, for: '5s' },
  layer:
    ({ for: forMs }, injection) =>
    (next) =>
    (call) => {
      const state = injection.memory<Pause>(`pause of ${call.server}`, () => ({ over: undefined }))
      const before = state.over
      // Sends the signal for each hit call, because other processes may have started meanwhile.
      if (!injection.faultEnvironment.signal(call.server, 'SIGSTOP')) {
        injection.notApplicable(NO_PROCESS)
        return next(call)
      }
      injection.note(before === undefined ? { effect: 'paused', forMs } : { effect: 'found paused' })
      const over = before ?? (state.over = resumed(call.server, forMs, state, injection))
      void injection.delaying(call, firstOf(over, call.signal))
      return next(call)
    },
} satisfies FaultType<z.output<typeof pauseSchema>>

/**
 * Continues a process after `forMs` milliseconds, or as soon as the fault ends. Resolves when the process continues.
 */
function resumed(server: string, forMs: Millis, state: Pause, injection: Injection): Promise<void> {
  const { clock, released, faultEnvironment } = injection
  return new Promise((resolve) => {
    const end = () => {
      cancel()
      released.removeEventListener('abort', end)
      state.over = undefined
      faultEnvironment.signal(server, 'SIGCONT')
      resolve()
    }
    const cancel = clock.after(forMs, end)
    released.addEventListener('abort', end)
  })
}

const crashLoopSchema = z.strictObject({
  for: duration({ min: 1, max: 3_600_000 }).default(30_000).describe('How long the crash loop lasts.'),
  after: duration({ max: 600_000 })
    .default(0)
    .describe('How long each process lives; with 0 it ends immediately after its start.'),
  signal: ending.default('KILL').describe('The signal that ends each process.'),
})

interface Looping {
  loop: CrashLoop | undefined
  endsAt: Millis
}

/** Ends each process that the gateway starts for a server, from the first hit call to the end of the crash loop. */
const crashLoop = {
  schema: crashLoopSchema,
  family: 'process',
  about: "The server's process ends, and so does each replacement, for a while.",
  use: 'To test a program that cannot start: how often the gateway tries, and how soon the program is back once it can run.',
  seen: 'Errors with the time of the next start.',
  containedBy: {
    policies: [],
    how: 'The gateway pauses before each start, from 1 s up to 30 s. Calls in the meantime fail at once, unsent, and no retry waits for the start.',
  },
  methods: requests,
  sides: ['upstream'],
  transports: ownProcess('conn.flap'),
  example: {
    name: 'crash-loop',
    rate: 1,
    ttl: '10m',
    match: { server: 'files' },
    for: '30s',
    after: '100ms',
  },
  layer:
    ({ for: forMs, after, signal }, injection) =>
    (next) =>
    (call) => {
      const now = injection.clock.now()
      const state = injection.memory<Looping>(`crash loop of ${call.server}`, () => ({
        loop: undefined,
        endsAt: now + forMs,
      }))
      if (now >= state.endsAt) {
        injection.notApplicable('the crash loop is over')
        return next(call)
      }
      const isFirst = state.loop === undefined
      state.loop ??= { signal: `SIG${signal}`, afterMs: after, over: endOfLoop(forMs, injection) }
      injection.note(isFirst ? { effect: 'crash loop', forMs } : { effect: 'in crash loop' })
      // Calls this for each hit call, because new settings of the server may have started other processes.
      injection.faultEnvironment.crash(call.server, state.loop)
      return next(call)
    },
} satisfies FaultType<z.output<typeof crashLoopSchema>>

function endOfLoop(forMs: Millis, { clock, released }: Injection): Cancellation {
  const over = new Cancellation()
  const end = () => {
    cancel()
    released.removeEventListener('abort', end)
    over.abort('over')
  }
  const cancel = clock.after(forMs, end)
  released.addEventListener('abort', end)
  return over
}

const pollutions = ['log', 'json', 'banner', 'bytes', 'half'] as const

const pollutionSchema = z.strictObject({
  kind: z
    .enum(pollutions)
    .default('log')
    .describe(
      'A log line; a JSON log line; a banner; bytes that are no UTF-8; or text without a line break, so the answer is in the same line.',
    ),
  lines: z
    .int()
    .min(1)
    .max(1_000)
    .default(1)
    .describe('How often the program prints the text; always once with `half`.'),
  text: z
    .string()
    .min(1)
    .max(4_096)
    .optional()
    .describe('Text to print in place of the usual text, unchanged; not with `bytes`.'),
})

type PollutionConfig = z.output<typeof pollutionSchema>

/** Texts that programs print among protocol messages by mistake, most often logs of a library. */
const usual: Readonly<Record<Exclude<(typeof pollutions)[number], 'bytes'>, string>> = {
  log: '[INFO] processing request',
  json: '{"level":"info","msg":"processing request"}',
  banner: '================================\n  MCP server running on stdio\n================================',
  half: '[INFO] processing request ... ',
}

/**
 * Bytes that are invalid UTF-8: forbidden bytes, a lone continuation byte and an overlong form, with a zero byte among
 * them.
 */
const notUtf8 = Buffer.from([0xff, 0xfe, 0x00, 0x80, 0xc0, 0xaf, 0x0a])

const pollution = {
  schema: pollutionSchema,
  family: 'process',
  about: 'The program prints something else to its standard output, directly before an answer.',
  use: 'To test the most frequent bug of local servers: logs, banners and stray bytes among the messages.',
  seen: 'Nothing, or with `half` a timeout.',
  containedBy: {
    policies: ['attemptTimeout', 'retry'],
    how: 'The gateway skips lines that are no messages, and logs a few of them. If the answer is damaged, the attempt timeout ends the wait.',
  },
  methods: requests,
  sides: ['upstream'],
  transports: ownOutput,
  example: { name: 'pollution', rate: 0.1, ttl: '10m', match: { server: 'files' }, kind: 'log', lines: 3 },
  layer: (config, injection) =>
    onAnswer((text) => {
      const before = printed(config)
      injection.note({ kind: config.kind, bytes: before.length })
      return { texts: [text], before }
    }, injection),
} satisfies FaultType<PollutionConfig>

function printed({ kind, lines, text }: PollutionConfig): Buffer {
  if (kind === 'bytes') return Buffer.concat(Array.from({ length: lines }, () => notUtf8))
  const words = text ?? usual[kind]
  return Buffer.from(kind === 'half' ? words : `${words}\n`.repeat(lines))
}

const floodSchema = z.strictObject({
  lines: z
    .enum(['junk', 'notifications'])
    .default('junk')
    .describe('The lines: junk that is no message, or log messages of the protocol.'),
  perSecond: z
    .int()
    .min(1)
    .max(10_000)
    .default(1_000)
    .describe('How many lines per second, unless the gateway reads more slowly.'),
  size: z.int().min(1).max(8_192).default(128).describe('The minimum length of each line, in bytes.'),
  for: duration({ min: 1, max: 600_000 }).default(5_000).describe('How long the flood lasts.'),
})

type FloodConfig = z.output<typeof floodSchema>

/** Time between two portions of a flood, in milliseconds. */
const PORTION_MS: Millis = 50

/**
 * Inserts lines into the server output the gateway reads, between the process's own lines. As with a pipe, the next
 * portion follows when the gateway has read the portion before.
 */
const flood = {
  schema: floodSchema,
  family: 'process',
  about: 'The program floods its standard output with junk or notifications for a while.',
  use: 'To check that a server with endless output slows down only itself.',
  seen: 'Answers of this server arrive late; with `notifications`, also the log messages.',
  containedBy: {
    policies: ['attemptTimeout'],
    how: 'Servers take turns, and the gateway reads a pipe no faster than it handles lines. The log shows only a few junk lines per second.',
  },
  methods: requests,
  sides: ['upstream'],
  transports: ownOutput,
  example: { name: 'flood', rate: 0.01, ttl: '10m', match: { server: 'files' }, perSecond: 1_000, for: '5s' },
  layer: (config, injection) => (next) => (call) => {
    const now = injection.clock.now()
    const state = injection.memory(`flood of ${call.server}`, () => ({ until: now }))
    if (now < state.until) {
      injection.note({ effect: 'in flood' })
      return next(call)
    }
    const { lines, perSecond, for: forMs } = config
    state.until = now + forMs
    injection.note({ effect: 'flood', lines, perSecond, forMs })
    void pour(call.server, config, state.until, injection)
    return next(call)
  },
} satisfies FaultType<FloodConfig>

async function pour(
  server: string,
  { lines, perSecond, size }: FloodConfig,
  until: Millis,
  { clock, released, faultEnvironment }: Injection,
): Promise<void> {
  const count = Math.max(1, Math.round((perSecond * PORTION_MS) / 1_000))
  const portion = Buffer.from(`${lineOf(lines, size)}\n`.repeat(count))
  const gapMs = (count * 1_000) / perSecond
  while (!released.aborted && clock.now() < until) {
    await faultEnvironment.write(server, portion, released)
    await firstOf(clock.sleep(gapMs, released), released)
  }
}

function lineOf(lines: FloodConfig['lines'], size: number): string {
  if (lines === 'junk') return 'x'.repeat(size)
  const message = (data: string) =>
    `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"${data}"}}`
  return message('x'.repeat(Math.max(0, size - message('').length)))
}

/** Faults of a server's process, and of its output. */
export const processFaults = {
  'proc.kill': kill,
  'proc.pause': pause,
  'proc.crash_loop': crashLoop,
  'stdout.pollution': pollution,
  'stdout.flood': flood,
}
