import type { KeyObject } from 'node:crypto'
import { readFile, stat } from 'node:fs/promises'
import { openPrivateKey, sign, type Signature, type SignedKind } from '../../approval/keys.ts'
import { Misuse, type Output, UnusableInput } from '../shared/arguments.ts'
import { type Given, textOf } from '../shared/control-command.ts'
import { askPassphrase } from './passphrase.ts'

/** The line before the key in a file of `breakwater key new`: the name in the gateway's trust list. */
export const headerOf = (name: string) => `Breakwater key of ${name}\n`

const HEADER = /^Breakwater key of ([\w.-]{1,64})\n/

/** The option of commands that sign. */
export const keyOption = {
  key: {
    kind: 'text',
    value: 'FILE',
    about: 'your private key, from `breakwater key new`; its passphrase is asked for',
  },
} as const

/** A person's opened key. */
export interface Signer {
  /** Name of the person, from the key file. */
  readonly by: string
  readonly sign: (kind: SignedKind, value: unknown) => Signature
}

/** Reads a person's key file and asks for the passphrase. Returns a function that signs documents. */
export async function signerOf(given: Pick<Given, 'values' | 'out'>): Promise<Signer['sign']> {
  const file = textOf(given.values, 'key')
  if (file === undefined) throw new Misuse('--key FILE is missing')
  return (await openSigner(file, given.out)).sign
}

/** Opens a key file with the passphrase from the terminal. Rejects with an `UnusableInput`. */
export async function openSigner(file: string, out: Output): Promise<Signer> {
  const text = await readFile(file, 'utf8').catch((error: Error) => {
    throw new UnusableInput(`${file} cannot be read: ${error.message}`)
  })
  const [, by] = HEADER.exec(text) ?? []
  if (by === undefined) throw new UnusableInput(`${file} is no key file of \`breakwater key new\``)
  const { mode } = await stat(file)
  if ((mode & 0o077) !== 0) out.stderr(`breakwater: other users can read ${file}: chmod 600 ${file}`)
  const key: KeyObject | undefined = openPrivateKey(
    text,
    await askPassphrase(`Passphrase of the key of ${by}`),
  )
  if (key === undefined) throw new UnusableInput('the passphrase is wrong, or the file holds no Ed25519 key')
  return { by, sign: (kind, value) => sign(kind, value, key, by) }
}
