import { z } from 'zod'
import { Cancellation } from '../../mesh/cancel.ts'
import type { Millis } from '../../mesh/clock.ts'
import type { CrashLoop } from '../../mesh/wire-shape.ts'
import { gatewayError } from '../../mesh/errors.ts'
import { duration, waitDuration } from '../../units/duration.ts'
import type { FaultType, Injection, Only, Transport } from '../fault.ts'
import { firstOf, onAnswer, requests } from './shared.ts'

/** Only what the gateway has started can be signalled. `instead`: what does the like elsewhere. */
const ownProcess = (instead: string): Only<Transport> => ({
  only: ['stdio'],
  otherwise: `there is no process behind {}; see ${instead}`,
})

const ownOutput: Only<Transport> = { only: ['stdio'], otherwise: '{} has no standard output' }

const NO_PROCESS = 'the server has no process now'

/** Signals that end a process. */
const ending = z.enum(['TERM', 'KILL', 'INT', 'HUP', 'QUIT', 'ABRT', 'SEGV'])

const killSchema = z.strictObject({
  signal: ending.default('TERM').describe('What ends it.'),
  restartAfter: duration({ min: 1 })
    .optional()
    .describe(
      'How long calls that the fault hits find no process after that; without it, until it is started again.',
    ),
})

/**
 * Ends the server's process. The call that it hits goes on, and fares as a call does whose server has just died.
 * Starting it again is the gateway's business, not the fault's: `restartAfter` keeps away the calls that the fault
 * hits (with a rate below 1, the others may find a new process before).
 */
const kill = {
  schema: killSchema,
  family: 'process',
  about: "Ends the server's process.",
  use: 'To test the restart of a local server and the calls that were under way when it died.',
  seen: 'Calls that were under way fail.',
  containedBy: {
    policies: ['retry'],
    how: 'The gateway starts the program again, and calls that only read are retried.',
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
  for: duration({ min: 1, max: 600_000 }).default(5_000).describe('How long it stands still.'),
})

/** The end of a pause that a process is in; undefined while it runs. */
interface Pause {
  over: Promise<void> | undefined
}

/**
 * Stops the server's process and what else is in its group, as by `kill -STOP`: it reads nothing, answers nothing and loses
 * nothing. Calls that the fault hits meanwhile find it as it is.
 */
const pause = {
  schema: pauseSchema,
  family: 'process',
  about: "The server's process stands still for a while, and then goes on.",
  use: 'To test a server that hangs as a whole: a long garbage collection, swapping, a frozen container.',
  seen: 'Silence, then the answer, or a timeout.',
  containedBy: {
    policies: ['bulkhead', 'attemptTimeout', 'deadline'],
    how: 'The bulkhead bounds what is sent meanwhile, and a timeout ends what takes too long.',
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
      // Again each time: others may have been started meanwhile.
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

/** Has a process go on after a time, or as soon as the fault ends. */
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
  for: duration({ min: 1, max: 3_600_000 }).default(30_000).describe('How long no process stays up.'),
  after: duration({ max: 600_000 })
    .default(0)
    .describe('How long each process lives; with 0 it ends as soon as it has been started.'),
  signal: ending.default('KILL').describe('What ends them.'),
})

interface Looping {
  loop: CrashLoop | undefined
  endsAt: Millis
}

/** From the first call that it hits on, once for each server: the gateway starts processes, and each of them ends again. */
const crashLoop = {
  schema: crashLoopSchema,
  family: 'process',
  about: "The server's process ends, and so does each that is started in its place, for a while.",
  use: 'To test a program that cannot come up: how often it is started, and how soon it is back once it can.',
  seen: 'Errors that say when the program is started again.',
  containedBy: {
    policies: [],
    how: 'The gateway pauses before each start, from 1 s up to 30 s; calls that come meanwhile fail at once, unsent, and no retry waits for it.',
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
      // Again each time: the server may have got other settings, and with them other processes.
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
      'A line of a log; one in JSON; a banner; bytes that are no UTF-8; or text without a line break, so that the answer stands in the same line.',
    ),
  lines: z.int().min(1).max(1_000).default(1).describe('How often it is printed; always once with `half`.'),
  text: z
    .string()
    .min(1)
    .max(4_096)
    .optional()
    .describe('What is printed in place of the usual words, as it is; not with `bytes`.'),
})

type PollutionConfig = z.output<typeof pollutionSchema>

/** Usual output of programs where only messages belong, most often because a library of the program logs there. */
const usual: Readonly<Record<Exclude<(typeof pollutions)[number], 'bytes'>, string>> = {
  log: '[INFO] processing request',
  json: '{"level":"info","msg":"processing request"}',
  banner: '================================\n  MCP server running on stdio\n================================',
  half: '[INFO] processing request ... ',
}

/** Bytes that occur nowhere in UTF-8, a lone continuation and an overlong form, with a zero among them. */
const notUtf8 = Buffer.from([0xff, 0xfe, 0x00, 0x80, 0xc0, 0xaf, 0x0a])

const pollution = {
  schema: pollutionSchema,
  family: 'process',
  about: 'The program prints something else to its standard output, directly before an answer.',
  use: 'To test the most frequent defect of local servers: logs, banners and stray bytes among the messages.',
  seen: 'Nothing, or with `half` a timeout.',
  containedBy: {
    policies: ['attemptTimeout', 'retry'],
    how: 'The gateway skips lines that are no messages and logs a few of them; where the answer is spoiled, the attempt timeout ends the wait.',
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
    .describe('What comes: lines that are no messages, or log messages of the protocol.'),
  perSecond: z
    .int()
    .min(1)
    .max(10_000)
    .default(1_000)
    .describe('How many of them come in a second, unless the gateway reads more slowly.'),
  size: z.int().min(1).max(8_192).default(128).describe('How long each is at least, in bytes.'),
  for: duration({ min: 1, max: 600_000 }).default(5_000).describe('How long they come.'),
})

type FloodConfig = z.output<typeof floodSchema>

/** Between two portions of a flood, in milliseconds. */
const PORTION_MS: Millis = 50

/**
 * Pours lines into what the gateway reads of the server's process, between the lines that it writes itself. As from a pipe,
 * the next portion comes when the one before it has been read.
 */
const flood = {
  schema: floodSchema,
  family: 'process',
  about: 'The program floods its standard output with junk or notifications for a while.',
  use: 'To check that a server which never stops talking slows down nobody but itself.',
  seen: 'Later answers of this server; with `notifications`, these too.',
  containedBy: {
    policies: ['attemptTimeout'],
    how: 'Servers take turns, a pipe is not read faster than its lines are dealt with, and of what is no message the log shows a few lines a second.',
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

/** Faults of a server's process, and of what it prints. */
export const processFaults = {
  'proc.kill': kill,
  'proc.pause': pause,
  'proc.crash_loop': crashLoop,
  'stdout.pollution': pollution,
  'stdout.flood': flood,
}
