# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# Scenarios of a script take turns, as unit tests do (turn.h): each call of has_turn is of the next one. Without ZPLAN_TURN=K/N all run.
turn_of_commit=${ZPLAN_TURN:-0/1}
next_turn=0

has_turn() { # AMONG: of so many scenarios that follow each other one is due
  turns=${turn_of_commit#*/}
  [ "$turns" -lt "$1" ] || turns=$1
  next_turn=$((next_turn + 1))
  [ $(((next_turn - 1) % turns)) -eq $((${turn_of_commit%/*} % turns)) ]
}
