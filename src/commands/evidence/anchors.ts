import { appendFile } from 'node:fs/promises'
import { join } from 'node:path'
import { readPublicKey } from '../../approval/keys.ts'
import { readOrNothing } from '../../chaos/journal/head.ts'
import type { Env } from '../../config/files/interpolate.ts'
import { anchorOf, type SignedAnchor, signedAnchorSchema, unprovenBy } from '../../evidence/anchor.ts'
import type { IndexCheck } from '../../evidence/read-index.ts'
import { systemClock } from '../../mesh/clock.ts'
import { parseJson } from '../../protocol/jsonrpc.ts'
import { printable } from '../../telemetry/printable.ts'
import { numbered } from '../../units/numbered.ts'
import { signerOf } from '../agents/signer.ts'
import { Misuse, UnusableInput } from '../shared/arguments.ts'
import type { Values } from '../shared/control-command.ts'
import { answer, type Asked } from './asked.ts'
import { checkedIndex, configFile } from './stored-runs.ts'

/** Anchors, one JSON line each; copies elsewhere outlive the folder. */
const ANCHORS = 'runs.anchors.jsonl'

/** `runs anchor`: signs the end of the index, and appends the anchor to the file of anchors. */
export async function anchor({ values, out, env }: Asked): Promise<number> {
  const index = await checkedIndex(values, env)
  if (index.problems.length > 0)
    throw new UnusableInput(`a damaged index cannot be anchored:\n${index.problems.join('\n')}`)
  const document = anchorOf(index, systemClock.wall())
  if (document === undefined) throw new UnusableInput(`${index.folder} has no whole line of an index of runs`)
  const path = join(index.folder, ANCHORS)
  const known = await anchorsIn(path)
  const signed = { anchor: document, signature: (await signerOf({ values, out }))('anchor', document) }
  // The line of a process that ended while writing must not spoil this line.
  const begin = known === '' || known.endsWith('\n') ? '' : '\n'
  await appendFile(path, `${begin}${JSON.stringify(signed)}\n`, { mode: 0o600 })
  out.stdout(JSON.stringify(signed))
  out.stderr(
    `breakwater: ${numbered(document.runs, 'run')} anchored in ${path}; keep a copy of this line where the gateway cannot write`,
  )
  return 0
}

/** `runs verify`: checks the chain of the index, and each anchor. */
export async function verify(asked: Asked): Promise<number> {
  const { values, out, env } = asked
  const index = await checkedIndex(values, env)
  const files = [{ file: ANCHORS, text: await anchorsIn(join(index.folder, ANCHORS)) }]
  if (typeof values.anchors === 'string') {
    const text = await anchorsIn(values.anchors)
    if (text.trim() === '') throw new UnusableInput(`${values.anchors} holds no anchor`)
    files.push({ file: values.anchors, text })
  }
  const trusted = await trustedKeys(values, env)
  const problems = [...index.problems]
  let newest: SignedAnchor | undefined
  const lines = files.flatMap(({ file, text }) =>
    text
      .split('\n')
      .flatMap((line, at) => (line === '' ? [] : [{ line, place: `line ${at + 1} of ${file}` }])),
  )
  for (const { line, place } of lines) {
    const { data } = signedAnchorSchema.safeParse(parseJson(line))
    const why = data === undefined ? 'this is no anchor' : whyUnproven(data, index, trusted)
    if (why !== undefined) problems.push(`${place}: ${why}`)
    else if (data!.anchor.runs >= (newest?.anchor.runs ?? 0)) newest = data
  }
  // A user who names a key asks for a proof.
  const isAsked = Array.isArray(values.trust) && values.trust.length > 0
  if (isAsked && newest === undefined) problems.push('no anchor of a trusted person proves a line')
  const count = index.runs
  const anchored = newest?.anchor.runs ?? 0
  await answer(asked, { runs: count, anchored, problems }, () =>
    problems.length > 0
      ? [...problems, numbered(problems.length, 'problem')]
      : [
          `${numbered(count, 'run')}: no line of the index was changed, removed or inserted`,
          ...(newest === undefined
            ? []
            : [
                `anchored by ${newest.signature.by} at ${newest.anchor.at}: the first ${numbered(anchored, 'run')}`,
              ]),
        ],
  )
  if (newest === undefined && problems.length === 0)
    out.stderr(
      'breakwater: there is no anchor, so this proves nothing against a person who can read the key of the state folder',
    )
  return problems.length === 0 ? 0 : 1
}

/** Returns why an anchor does not prove the index; undefined when the anchor does. */
function whyUnproven(signed: SignedAnchor, index: IndexCheck, trusted: ReadonlyMap<string, string>) {
  if (trusted.has(signed.signature.by)) return unprovenBy(signed, index, trusted)
  const by = printable(signed.signature.by)
  return `signed by ${by}, and no public key of ${by} is known: give --trust ${by}=PUBLICKEY`
}

/**
 * Returns the text of a file with anchors; empty without a file. Rejects with an `UnusableInput`: anchors that cannot be
 * read must not look like no anchors.
 */
async function anchorsIn(path: string): Promise<string> {
  const text = await readOrNothing(path).catch((error: Error) => {
    throw new UnusableInput(`the anchors in ${path} cannot be read: ${error.message}`)
  })
  return text ?? ''
}

/** Returns trusted public keys by name: those of the options, else those of the config. */
async function trustedKeys(values: Asked['values'] & Values, env: Env): Promise<ReadonlyMap<string, string>> {
  const { trust } = values
  const given = (Array.isArray(trust) ? trust : []) as readonly string[]
  const keys = new Map<string, string>()
  for (const one of given) {
    const [name = '', key = ''] = one.split(/=(.*)/s)
    if (readPublicKey(key) === undefined)
      throw new Misuse(
        `--trust must be NAME=PUBLICKEY, the name and the key as \`breakwater key new\` prints both, not ${one}`,
      )
    if (keys.has(name)) throw new Misuse(`--trust names ${name} twice`)
    keys.set(name, key)
  }
  const file = given.length > 0 ? undefined : await configFile(values)
  if (file === undefined) return keys
  const [{ loadConfig }, { formatIssue }] = await Promise.all([
    import('../../config/load.ts'),
    import('../../config/issues/issues.ts'),
  ])
  const loaded = await loadConfig(file, env)
  if (!loaded.ok) throw new UnusableInput(loaded.errors.map(formatIssue).join('\n'))
  for (const { name, key } of loaded.config.gateway.controlMcp?.trust ?? []) keys.set(name, key)
  return keys
}
