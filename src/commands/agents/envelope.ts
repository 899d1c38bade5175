import { randomBytes } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { parse } from 'yaml'
import { type Envelope, envelopeSchema, unsoundIn } from '../../approval/envelope.ts'
import { Origins } from '../../config/files/places.ts'
import { explain } from '../../config/issues/explain.ts'
import type { Env } from '../../config/files/interpolate.ts'
import { systemClock } from '../../mesh/clock.ts'
import { glob } from '../../mesh/match.ts'
import { isObject } from '../../protocol/jsonrpc.ts'
import { printable } from '../../telemetry/printable.ts'
import { listed, optionLines, optionsOf, type Output, UnusableInput } from '../shared/arguments.ts'
import { ask, type Command, common, paintOf, runNamed, textOf } from '../shared/control-command.ts'
import { table } from '../shared/table.ts'
import { keyOption, signerOf } from './signer.ts'

interface Overview {
  readonly gateway: string
  readonly environment: string
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

const isoOf = (ms: number) => new Date(ms).toISOString().replace(/\.\d+Z$/, 'Z')

const list: Command = {
  run: (given) =>
    ask(given, { method: 'GET', path: PATH }, ({ gateway, envelopes }: Overview) => [
      `gateway ${gateway}`,
      ...(envelopes.length === 0
        ? ['there is no envelope: write one with `breakwater envelope draft`']
        : table(
            ['ENVELOPE', 'SIGNED BY', 'STATE', 'RUNS LEFT', 'TODAY', 'EXPIRES'],
            envelopes.map(({ envelope, by, state, remaining }) => [
              envelope.id,
              by,
              state,
              remaining.runs,
              remaining.today,
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
    const answered = await given.control({ method: 'GET', path: PATH })
    if (!answered.ok) throw new UnusableInput(answered.message)
    const { gateway, environment, targets } = answered.value as Overview
    const isMeant = glob(textOf(given.values, 'server') ?? '*')
    const now = systemClock.wall()
    const readable = targets
      .filter(({ server }) => isMeant(server))
      .map(({ server, identity, tools }) => ({
        server,
        identity,
        tools: tools.filter(({ effect }) => effect === 'read_only').map(({ tool }) => tool),
      }))
      .filter(({ tools }) => tools.length > 0)
    given.out.stdout(
      JSON.stringify(
        {
          format: 1,
          id: `env-${randomBytes(4).toString('hex')}`,
          gateway,
          environment,
          notBefore: isoOf(now),
          expiresAt: isoOf(now + DRAFT_LIFE_MS),
          proposers: [textOf(given.values, 'agent') ?? 'AGENT'],
          targets: readable,
          effects: ['read_only'],
          faults: [
            {
              type: 'conn.latency',
              maxRate: 0.5,
              limits: { 'distribution.min': '5s', 'distribution.max': '5s' },
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

const sign: Command = {
  positionals: ['FILE'],
  options: keyOption,
  async run(given) {
    const [file = ''] = given.positionals
    const text = await readFile(file, 'utf8').catch((error: Error) => {
      throw new UnusableInput(`${file} cannot be read: ${error.message}`)
    })
    const envelope: unknown = parse(text)
    const read = envelopeSchema.safeParse(envelope, { error: () => '' })
    if (!read.success || !isObject(envelope)) {
      const issues = explain(read.error?.issues ?? [], {
        schema: envelopeSchema,
        value: envelope,
        origins: new Origins(),
      })
      throw new UnusableInput(
        issues.map(({ path, message }) => `${file}: ${path}: ${message}`).join('\n') ||
          `${file} holds no envelope`,
      )
    }
    const problems = unsoundIn(read.data)
    if (problems.length > 0)
      throw new UnusableInput(problems.map((problem) => `${file}: ${problem}`).join('\n'))
    for (const line of envelopeLines(read.data)) given.out.stderr(printable(line, Infinity))
    const signer = await signerOf(given)
    const body = { envelope, signature: signer('envelope', envelope) }
    return ask(given, { method: 'POST', path: PATH, body }, ({ installed }: { installed: string }) => [
      `${installed} is in force`,
    ])
  },
}

/** Returns the envelope in lines: everything that the signature allows. */
function envelopeLines(envelope: Envelope): string[] {
  const { id, environment, proposers, targets, effects, faults, maxRate, ladder, gate, budget } = envelope
  const { notBefore, expiresAt } = envelope
  return [
    `${id}: from ${notBefore} to ${expiresAt}, in ${environment}`,
    `agents: ${proposers.join(', ')}; effects: ${effects.join(', ')}`,
    ...targets.map(({ server, tools }) => `targets ${server}: ${tools.join(', ')}`),
    ...faults.map(
      ({ type, maxRate, limits }) => `fault ${type}, rate up to ${maxRate}, limits ${JSON.stringify(limits)}`,
    ),
    maxRate === undefined
      ? 'one fault in a run'
      : `several faults in a run, with rates up to ${maxRate} in all`,
    `stages up to ${ladder.map((rung) => `${Math.round(rung * 100)}%`).join(', then ')}; gate: ${gate.map(({ text }) => text).join(', ')}`,
    `${budget.runs} runs, ${budget.perDay} a day; suspended after ${budget.aborts} runs that did not complete`,
  ]
}

const lift: Command = {
  positionals: ['ENVELOPE'],
  options: keyOption,
  async run(given) {
    const answered = await given.control({ method: 'GET', path: PATH })
    if (!answered.ok) throw new UnusableInput(answered.message)
    const { gateway } = answered.value as Overview
    const order = {
      format: 1 as const,
      envelope: given.positionals[0] ?? '',
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
