import { writeFile } from 'node:fs/promises'
import { artifacts } from './artifacts.ts'
import { deployFolder } from './paths.ts'

for (const { path, text } of await artifacts()) {
  await writeFile(deployFolder + path, text)
  console.log(`deploy/${path}`)
}
