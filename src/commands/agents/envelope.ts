import { randomBytes } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { parse } from 'yaml'
import { type Envelope, envelopeSchema, unsoundIn } from '../../approval/envelope.ts'
import { parseSource } from '../../config/files/document.ts'
import { Origins } from '../../config/files/places.ts'
import { explain } from '../../config/issues/explain.ts'
import type { Env } from '../../config/files/interpolate.ts'
import { systemClock } from '../../mesh/clock.ts'
import { glob } from '../../mesh/match.ts'
import { isObject } from '../../protocol/jsonrpc.ts'
import { listed, optionLines, optionsOf, type Output, UnusableInput } from '../shared/arguments.ts'
import {
  ask,
  type Command,
  commandFor,
  common,
  type Given,
  paintOf,
  runNamed,
  textOf,
} from '../shared/control-command.ts'
import { table } from '../shared/table.ts'
import { envelopeLines } from './envelope-text.ts'
import { keyOption, signerOf } from './signer.ts'

interface Overview {
  readonly gateway: string
  readonly environment: string
  /** Names of the agents that have a token. */
  readonly agents: readonly string[]
  readonly targets: readonly {
    readonly server: string
    readonly identity: string
    readonly tools: readonly { readonly tool: string; readonly effect: string }[]
  }[]
  readonly envelopes: readonly {
    readonly envelope: Envelope
    readonly by: string
    readonly state: string
    readonly remaining: { readonly runs: number; readonly today: number; readonly aborts: number }
  }[]
}

const PATH = '/admin/envelopes'

/** Life of a drafted envelope, in milliseconds: 14 days. */
const DRAFT_LIFE_MS = 14 * 86_400_000

async function overviewOf({ control }: Given): Promise<Overview> {
  const answered = await control({ method: 'GET', path: PATH })
  if (!answered.ok) throw new UnusableInput(answered.message)
  return answered.value as Overview
}

const isoOf = (ms: number) => new Date(ms).toISOString().replace(/\.\d+Z$/, 'Z')

const list: Command = {
  run: (given) =>
    ask(given, { method: 'GET', path: PATH }, ({ gateway, envelopes }: Overview) => [
      `gateway ${gateway}`,
      ...(envelopes.length === 0
        ? [`there is no envelope: write one with \`${commandFor(given, 'breakwater envelope draft')}\``]
        : table(
            ['ENVELOPE', 'SIGNED BY', 'STATE', 'RUNS LEFT', 'TODAY', 'ABORTS LEFT', 'EXPIRES'],
            envelopes.map(({ envelope, by, state, remaining }) => [
              envelope.id,
              by,
              state,
              remaining.runs,
              remaining.today,
              remaining.aborts,
              envelope.expiresAt,
            ]),
            given.width,
            paintOf(given),
          )),
    ]),
}

const draft: Command = {
  options: {
    server: {
      kind: 'text',
      value: 'GLOB',
      about: 'servers in the envelope (default: all that are not protected)',
    },
    agent: {
      kind: 'text',
      value: 'NAME',
      about: 'the agent that may propose, as in gateway.controlMcp.tokens',
    },
  },
  async run(given) {
    const { gateway, environment, targets } = await overviewOf(given)
    const isMeant = glob(textOf(given.values, 'server') ?? '*')
    const now = systemClock.wall()
    const meant = targets.filter(({ server }) => isMeant(server))
    if (meant.length === 0)
      throw new UnusableInput(
        `no server matches ${textOf(given.values, 'server') ?? '*'}: ${targets.length === 0 ? 'the gateway has no server that is not protected' : `there are ${targets.map(({ server }) => server).join(', ')}`}`,
      )
    const readable = meant
      .map(({ server, identity, tools }) => ({
        server,
        identity,
        tools: tools.filter(({ effect }) => effect === 'read_only').map(({ tool }) => tool),
      }))
      .filter(({ tools }) => tools.length > 0)
    if (readable.length === 0)
      throw new UnusableInput(
        `no tool of ${meant.map(({ server }) => server).join(', ')} is known to be read-only, so the envelope would have no target`,
      )
    given.out.stdout(
      JSON.stringify(
        {
          format: 1,
          id: `env-${randomBytes(4).toString('hex')}`,
          gateway,
          environment,
          notBefore: isoOf(now),
          expiresAt: isoOf(now + DRAFT_LIFE_MS),
          proposers: [textOf(given.values, 'agent') ?? PLACEHOLDER],
          targets: readable,
          effects: ['read_only'],
          faults: [
            {
              type: 'conn.latency',
              maxRate: 0.5,
              limits: { 'distribution.delay': '5s', 'distribution.min': '5s', 'distribution.max': '5s' },
            },
          ],
          ladder: [0.1, 0.25, 0.5],
          maxStage: '5m',
          maxRun: '20m',
          gate: ['error_ratio < 5% for 30s'],
          budget: { runs: 10, perDay: 3, aborts: 2 },
        },
        undefined,
        2,
      ),
    )
    return 0
  },
}

/** The placeholder of a draft for the name of the agent. */
const PLACEHOLDER = 'AGENT'

const sign: Command = {
  positionals: ['FILE'],
  options: keyOption,
  async run(given) {
    const [file = ''] = given.positionals
    const { written, envelope } = await readEnvelope(file)
    const { agents } = await overviewOf(given)
    const unknown = envelope.proposers.filter((name) => !agents.includes(name))
    if (unknown.includes(PLACEHOLDER))
      throw new UnusableInput(
        `${file}: proposers: write the name of an agent in place of ${PLACEHOLDER}: ${known(agents)}`,
      )
    for (const line of envelopeLines(envelope)) given.out.stderr(line)
    for (const name of unknown)
      given.out.stderr(
        `breakwater: warning: no token in gateway.controlMcp.tokens has the name ${name}: ${known(agents)}`,
      )
    const signer = await signerOf(given)
    const body = { envelope: written, signature: signer('envelope', written) }
    return ask(given, { method: 'POST', path: PATH, body }, ({ installed }: { installed: string }) => [
      `${installed} is in force`,
    ])
  },
}

const known = (agents: readonly string[]) =>
  agents.length === 0 ? 'no agent has a token' : `the agents with a token are ${agents.join(', ')}`

/**
 * Reads an envelope once: the signature is over the value as written, and the person sees the same value. Rejects with
 * an `UnusableInput`.
 */
async function readEnvelope(file: string): Promise<{ written: object; envelope: Envelope }> {
  const text = await readFile(file, 'utf8').catch((error: Error) => {
    throw new UnusableInput(`${file} cannot be read: ${error.message}`)
  })
  const { problems } = parseSource(file, text)
  if (problems.length > 0)
    throw new UnusableInput(
      problems
        .map(({ position, message }) => `${file}:${position.line}:${position.column}: ${message}`)
        .join('\n'),
    )
  let written: unknown
  try {
    written = parse(text)
  } catch (error) {
    throw new UnusableInput(`${file} cannot be read: ${(error as Error).message.split('\n')[0]}`)
  }
  const read = envelopeSchema.safeParse(written, { error: () => '' })
  if (!read.success || !isObject(written)) {
    const issues = explain(read.error?.issues ?? [], {
      schema: envelopeSchema,
      value: written,
      origins: new Origins(),
    })
    throw new UnusableInput(
      issues
        .map(({ path, message }) => [file, path, message].filter((part) => part !== '').join(': '))
        .join('\n') || `${file} holds no envelope`,
    )
  }
  const unsound = unsoundIn(read.data)
  if (unsound.length > 0) throw new UnusableInput(unsound.map((problem) => `${file}: ${problem}`).join('\n'))
  return { written, envelope: read.data }
}

const lift: Command = {
  positionals: ['ENVELOPE'],
  options: keyOption,
  async run(given) {
    const [id = ''] = given.positionals
    const { gateway, envelopes } = await overviewOf(given)
    const state = envelopes.find(({ envelope }) => envelope.id === id)?.state
    if (state === undefined) throw new UnusableInput(`there is no envelope ${id}`)
    if (state !== 'suspended')
      throw new UnusableInput(`${id} is not suspended but ${state}: there is nothing to lift`)
    const order = {
      format: 1 as const,
      envelope: id,
      gateway,
      nonce: randomBytes(16).toString('base64url'),
    }
    const signer = await signerOf(given)
    const body = { lift: order, signature: signer('lift', order) }
    return ask(given, { method: 'POST', path: `${PATH}/lift`, body }, ({ lifted }: { lifted: string }) => [
      `${lifted} is in force again`,
    ])
  },
}

const withdraw: Command = {
  positionals: ['ENVELOPE'],
  run: (given) =>
    ask(
      given,
      {
        method: 'POST',
        path: `${PATH}/${encodeURIComponent(given.positionals[0] ?? '')}/withdraw`,
        body: {},
      },
      ({ withdrawn }: { withdrawn: string }) => [`${withdrawn} is withdrawn for good`],
    ),
}

const commands: Readonly<Record<string, Command>> = { list, draft, sign, lift, withdraw }

const usage = `breakwater envelope: the limits within which agents may start experiments

  breakwater envelope list               shows envelopes and the budget left
  breakwater envelope draft              prints an envelope for this gateway, to edit and sign
  breakwater envelope sign FILE          shows an envelope, asks for your passphrase, and puts the envelope into force
  breakwater envelope lift ENVELOPE      ends a suspension after runs that did not complete; needs your key
  breakwater envelope withdraw ENVELOPE  ends an envelope for good; needs no key

${optionLines([...listed(common), ...optionsOf(commands)])}`

/** `breakwater envelope …`: resolves to the exit code; 2 for wrong arguments. */
export const envelope = (args: readonly string[], out: Output, env: Env): Promise<number> =>
  runNamed(args, { usage, commands }, out, env)
