/* SPDX-License-Identifier: Apache-2.0 */
/* A program of one layer, for its links alone (tests/CMakeLists.txt). */
int main(void) { return 0; }
