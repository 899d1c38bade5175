import { readFile, stat } from 'node:fs/promises'
import type { z } from 'zod'
import type { Env } from '../../config/files/interpolate.ts'
import { addHandedIn, type HandIn, handIn, MOST_BYTES } from '../../evidence/hand-in.ts'
import { RunIndex } from '../../evidence/run-index.ts'
import { runSummary } from '../../evidence/summary.ts'
import { DEFAULT_CONTROL } from '../../gateway/control-address.ts'
import { lockState } from '../../gateway/state-lock.ts'
import { systemClock } from '../../mesh/clock.ts'
import { parseJson } from '../../protocol/jsonrpc.ts'
import { printable } from '../../telemetry/printable.ts'
import { numbered } from '../../units/numbered.ts'
import {
  controlAccess,
  Misuse,
  optionLines,
  type Output,
  runCommand,
  UnusableInput,
  type Values,
} from '../shared/arguments.ts'
import { controlAt } from '../shared/control.ts'
import { table } from '../shared/table.ts'
import { verdictTones } from './verdict-tones.ts'

const options = {
  control: { kind: 'url', value: 'URL', about: `the control port (default: ${DEFAULT_CONTROL})` },
  token: controlAccess.token,
  state: {
    kind: 'text',
    value: 'DIR',
    about: 'instead of a running gateway: a state folder that no gateway uses',
  },
  json: { kind: 'flag', about: 'the answer as JSON' },
} as const

const usage = `breakwater runs add FILE [--control URL | --state DIR]

  Adds the runs of a file to the index: a scenario or a comparison, from \`--summary FILE\` of these commands, or a soak.
  The file has one JSON document a line, or a single document. The index marks such runs as measured by a client. A run
  that the index has already is no error, unless the documents differ.

${optionLines(options)}

  Exit codes: 0; 1 when a run was refused; 2 for wrong arguments.`

/** Most bytes of a file. */
const MOST_FILE_BYTES = 64 * MOST_BYTES

/** This command proves access to the state folder, and nothing else. */
const BY = 'state folder'

const addedSchema = runSummary.pick({ id: true, verdict: true, reasons: true })
type Added = z.output<typeof addedSchema>

/** Runs `breakwater runs add` with the arguments after its name. Resolves to the exit code. */
export function addRuns(args: readonly string[], out: Output, env: Env): Promise<number> {
  return runCommand(args, { usage, options, positionals: ['FILE'] }, out, async (values, [file = '']) => {
    const { state } = values
    if (state !== undefined && (values.control ?? values.token) !== undefined)
      throw new Misuse('--state DIR excludes --control URL and --token TOKEN')
    const documents = await documentsIn(file)
    const added: Added[] = []
    try {
      if (state === undefined) await addToGateway(documents, added, values, env)
      else await addToFolder(state, documents, added)
    } finally {
      show(added, documents, values, out)
    }
    return 0
  })
}

/** Reads and checks all documents of a file, before the first is added. Rejects with an `UnusableInput`. */
async function documentsIn(file: string): Promise<readonly HandIn[]> {
  const { size } = await stat(file).catch((error: Error) => {
    throw new UnusableInput(`${file} cannot be read: ${error.message}`)
  })
  if (size > MOST_FILE_BYTES)
    throw new UnusableInput(`${file} has ${size} bytes: at most ${MOST_FILE_BYTES} are read`)
  const text = await readFile(file, 'utf8').catch((error: Error) => {
    throw new UnusableInput(`${file} cannot be read: ${error.message}`)
  })
  const whole = parseJson(text)
  const lines = whole === undefined ? text.split('\n').filter((line) => line.trim() !== '') : [text]
  if (lines.length === 0) throw new UnusableInput(`${file} has no run`)
  return lines.map((line, at) => {
    const read = handIn.safeParse(whole ?? parseJson(line))
    if (read.success) return read.data
    const [{ path = [], message = '' } = {}] = read.error.issues
    const where = path.length === 0 ? '' : `, ${path.map(String).join('.')}`
    throw new UnusableInput(
      `${file}, run ${at + 1}${printable(where)}: ${printable(message)}; \`--summary FILE\` of scenario and compare writes such files`,
    )
  })
}

/** Hands in documents to a running gateway, one after the other. Rejects with an `UnusableInput`. */
async function addToGateway(
  documents: readonly HandIn[],
  added: Added[],
  { control: base = DEFAULT_CONTROL, token }: Values<typeof options>,
  env: Env,
): Promise<void> {
  const control = controlAt({ base, token, env })
  for (const document of documents) {
    const answered = await control({ method: 'POST', path: '/admin/runs', body: document })
    if (!answered.ok) {
      const hint = answered.isAbsent ? '; or give --state DIR for a state folder that no gateway uses' : ''
      throw new UnusableInput(`${answered.message}${hint}`)
    }
    const read = addedSchema.safeParse(answered.value)
    if (!read.success) throw new UnusableInput(`${base} does not answer like the control port of a gateway`)
    added.push(read.data)
  }
}

/** Adds documents to the index of a folder, one after the other. Rejects with an `UnusableInput`. */
async function addToFolder(folder: string, documents: readonly HandIn[], added: Added[]): Promise<void> {
  const found = await stat(folder).catch((error: Error) => {
    throw new UnusableInput(`${folder} cannot be used: ${error.message}`)
  })
  if (!found.isDirectory()) throw new UnusableInput(`${folder} is no folder`)
  const lock = await lockState(folder).catch((error: Error) => {
    throw new UnusableInput(
      `${error.message}, or leave out --state, and hand the runs to the gateway (--control URL)`,
    )
  })
  try {
    const now = systemClock.wall()
    const { index } = await RunIndex.open(folder, now)
    try {
      for (const document of documents) {
        const taken = await addHandedIn(index, document, { gateway: null, bootId: null, by: BY, now })
        if (!taken.ok) throw new UnusableInput(taken.message)
        added.push(taken.run)
      }
    } finally {
      await index.close()
    }
  } finally {
    await lock.release()
  }
}

function show(
  added: readonly Added[],
  documents: readonly HandIn[],
  { json }: Values<typeof options>,
  out: Output,
): void {
  const runs = added.map(({ id, verdict, reasons }, at) => {
    const { kind, name } = documents[at]!
    return { id, kind, name, verdict, reasons }
  })
  if (json) out.stdout(JSON.stringify(runs, undefined, 2))
  else if (runs.length > 0) {
    const rows = runs.map(({ id, kind, name, verdict, reasons }) => [
      id,
      kind,
      name,
      { text: verdict, tone: verdictTones[verdict] },
      reasons.join(', '),
    ])
    const head = ['RUN', 'KIND', 'PLAN', 'VERDICT', 'REASONS']
    for (const line of table(head, rows, out.width ?? Infinity, out.paint)) out.stdout(line)
  }
  const left = documents.length - added.length
  if (left > 0 && documents.length > 1)
    out.stderr(
      `breakwater: ${numbered(left, 'run')} of ${documents.length} not added; adding the file again repeats no run`,
    )
}
